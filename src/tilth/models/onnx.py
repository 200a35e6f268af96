"""Export of classifiers and taggers to ONNX, with 8-bit weights or as they are, and their use."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tilth.errors import InputError, TilthError, one_line
from tilth.models.names import ONNX
from tilth.models.pretrained import reset_padding
from tilth.models.token_batches import uses_token_type_ids
from tilth.models.unpadded import first_tokens

if TYPE_CHECKING:
    from tilth.models.classifier import Classifier

_PACKAGES = ("onnx", "onnxruntime", "onnxscript")
# The kernel of a sum and its layer normalisation takes five times as long as those of the two.
_SLOW = ["SkipLayerNormFusion"]


class OnnxModel(nn.Module):
    """An exported model that is called as the one it was made of, on the processor.

    Args:
        file: that `save_onnx` wrote.
        config: the model's, of transformers.
    """

    def __init__(self, file: Path, config: Any) -> None:
        require_onnx()
        import onnxruntime

        super().__init__()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # each core labels a batch of its own
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(
                file, options, providers=["CPUExecutionProvider"], disabled_optimizers=_SLOW
            )
        except Exception as error:  # of any kind: the file is input
            said = one_line(error)[:200]
            raise InputError(f"{file}: does not load as ONNX: {said}: export it again") from error
        self._inputs = [one.name for one in self._session.get_inputs()]
        self.config, self.device = config, torch.device("cpu")
        # In the fingerprint of a classifier.
        digest = hashlib.blake2b(file.read_bytes(), digest_size=16).digest()
        self.register_buffer("digest", torch.frombuffer(bytearray(digest), dtype=torch.uint8))

    def num_parameters(self) -> int:
        """Return the number of parameters of the model it was made of."""
        return int(self._session.get_modelmeta().custom_metadata_map["parameters"])

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> SimpleNamespace:
        """Return `logits`: (texts, labels), of a tagger (texts, tokens, labels).

        All inputs are (texts, tokens).
        """
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        given = {
            "input_ids": input_ids, "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
        }  # fmt: skip
        feed = {name: given[name].numpy() for name in self._inputs}
        return SimpleNamespace(logits=torch.from_numpy(self._session.run(None, feed)[0]))


class _Logits(nn.Module):
    """A classifier's logits as a function of its named inputs in turn."""

    def __init__(self, model: Any, inputs: list[str]) -> None:
        super().__init__()
        self._model, self._inputs = model, inputs

    def forward(self, *given: Tensor) -> Tensor:
        logits: Tensor = self._model(**dict(zip(self._inputs, given, strict=True))).logits
        return logits


def require_onnx() -> None:
    """Refuse to go on without the packages of the extra `export`."""
    lacking = [name for name in _PACKAGES if find_spec(name) is None]
    if lacking:
        raise InputError(
            f'ONNX needs {", ".join(lacking)}, not installed: pip install "tilth[export]"'
        )


def save_onnx(classifier: Classifier, folder: Path, *, is_int8: bool) -> None:
    """Save a classifier or a tagger on the processor as ONNX, with its config and tokenizer.

    Args:
        is_int8: weights of matrix products become 8-bit, with a scale for each column; activations
            are rounded to 8 bits as they come (onnxruntime's dynamic quantisation).
    """
    require_onnx()
    model: Any = classifier.model
    names = ["input_ids", "attention_mask"]
    if uses_token_type_ids(model, classifier.tokenizer):
        names.append("token_type_ids")
    # Different tensors, one of them with padding: equal ones would become one input of the graph.
    padded = torch.arange(8) < torch.tensor([[8], [5]])
    given = (padded * 3, padded, torch.zeros(2, 8))
    examples = tuple(one.long() for one in given[: len(names)])
    model.set_attn_implementation("eager")
    any_size = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    whole = folder / f"float32-{ONNX}" if is_int8 else folder / ONNX
    folder.mkdir(parents=True, exist_ok=True)
    is_tagger = classifier.kind == "tags"
    with _quiet(), nullcontext() if is_tagger else first_tokens(model):
        try:
            program: Any = torch.onnx.export(
                _Logits(model, names).eval(), examples, input_names=names,
                output_names=["logits"], dynamic_shapes=((any_size,) * len(names),), dynamo=True,
                verbose=False,
            )  # fmt: skip
        except torch.onnx.OnnxExporterError as error:
            raise TilthError(
                f"model {classifier.name!r} ({model.config.model_type}) cannot be exported: torch "
                "does not translate its architecture to ONNX"
            ) from error
        for node in program.model.graph.all_nodes():
            node.metadata_props.clear()  # stack traces, with local paths
        program.model.metadata_props["parameters"] = str(model.num_parameters())
        program.save(whole, external_data=False)
        if is_int8:
            from onnxruntime.quantization import QuantType, quantize_dynamic

            quantize_dynamic(whole, folder / ONNX, weight_type=QuantType.QInt8, per_channel=True)
            whole.unlink()
    reset_padding(classifier.tokenizer)
    classifier.tokenizer.save_pretrained(folder)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the exporter and the quantisation say about their own ways."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
