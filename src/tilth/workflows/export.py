"""Export a trained classifier or tagger to ONNX, and compare its answers with the model's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data import fingerprint
from tilth.data.examples import Source, check_texts, input_columns, open_rows
from tilth.errors import InputError, TilthError
from tilth.files import disk_errors, write_file
from tilth.limits import settings_of
from tilth.models.classifier import fingerprint_classifier, load_classifier
from tilth.models.encoder import is_sentence_encoder
from tilth.models.names import ONNX, name_of, trained_columns
from tilth.models.onnx import OnnxModel, require_onnx, save_onnx
from tilth.models.trainer import MODEL, model_is_whole, save_whole
from tilth.runs import RESULTS, Run, refuse_inside
from tilth.storage import as_path
from tilth.workflows.predict import predict
from tilth.workflows.quickstart import quickstart_sentences
from tilth.workflows.settings import ExportSettings

if TYPE_CHECKING:
    from datasets import Dataset

    from tilth.models.classifier import Classifier

_README = """# {title}

ONNX, {precision} weights, made with tilth from `{model}`. On {rows:,} texts, {same:.1%} of its
{answers} are those of the model itself in float32; the largest difference of a label's probability
is {difference:.4f}. At most {longest} tokens are read. `tilth predict` and `tilth evaluate` take
this folder; without tilth:

```python
import numpy as np, onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.enable_truncation({longest})
encoded = tokenizer.encode({example})
given = {{
    "input_ids": encoded.ids,
    "attention_mask": encoded.attention_mask,
    "token_type_ids": encoded.type_ids,
}}
without = ["SkipLayerNormFusion"]  # its kernel is slow
session = onnxruntime.InferenceSession("model.onnx", disabled_optimizers=without)
inputs = {{one.name: np.array([given[one.name]], np.int64) for one in session.get_inputs()}}
logits = session.run(["logits"], inputs)[0]  # {shape}; config.json names the labels
```
"""


def export(
    model: str,
    out: str | Path,
    *,
    texts: Source | None = None,
    overwrite: bool = False,
    **asked: Any,
) -> dict[str, Any]:
    """Export a classifier or a tagger to ONNX; compare its answers with the model's in float32.

    Args:
        model: the run of a training, a folder or a hub id.
        out: the run folder; the exported model is in its folder `model`.
        texts: to compare the answers on; None: the quickstart's sentences, which are not of the
            model's domain.
        asked: fields of `ExportSettings`: precision, tolerance, text.

    Returns:
        `rows` with text, the share of them with the `same` answer (of a tagger, the same tags for
        all tokens), the largest `difference` of a label's probability, and the size in `bytes`.

    Raises:
        InputError: the model is none of these, the packages of the extra `export` are not
            installed, or the texts are wrong.
        TilthError: more answers differ than the tolerance allows, or torch does not translate the
            architecture.
    """
    settings = settings_of(ExportSettings, asked)
    require_onnx()
    model, out = name_of(model), as_path(out)
    if isinstance(texts, str | Path):
        refuse_inside(out, str(texts), named=[model])
    if is_sentence_encoder(model):
        raise InputError(
            f"model {model!r} is a sentence encoder, which sentence-transformers exports "
            '(backend="onnx"): give a classifier or a tagger'
        )
    given = load_classifier(model, device="cpu")
    if isinstance(given.model, OnnxModel):
        raise InputError(f"model {model!r} is exported already: give the model it was made of")
    data = _default_texts(given) if texts is None else texts
    rows, where = open_rows(data, "train")
    if not len(rows):
        raise InputError(f"{where}the set has no rows: give texts")
    text = settings.text or trained_columns(model, rows.column_names).get("text")
    columns = input_columns(rows, where, text, tagged=given.kind == "tags")
    check_texts(given.name, given.texts_per_input, columns, where)
    run = Run.open(
        out,
        command="export",
        settings={"model": model, "precision": settings.precision, "text": settings.text},
        fingerprints={
            "model": fingerprint_classifier(given), "texts": fingerprint(rows, rows.column_names)
        },
        parts=1,
        outputs=(MODEL, RESULTS),
        overwrite=overwrite,
    )  # fmt: skip
    with run, disk_errors(run.path):
        run.resolve("columns", lambda: trained_columns(model) or {"text": settings.text})
        if run.missing() or not model_is_whole(run):
            save = partial(save_onnx, given, is_int8=settings.precision == "int8")
            save_whole(run.path / "unfinished", run.path / MODEL, save)
            labelled = [
                predict(
                    name, data, device="cpu", quiet=True, precision="float32", text=text,
                    probabilities=True,
                )
                for name in (model, str(run.path / MODEL))
            ]  # fmt: skip
            answers = _side_by_side(*labelled)
            if not len(answers.drop_null()):
                raise InputError(f"{where}no row holds text: name another column or other texts")
            run.write_part(0, answers)
        results = _results(run)
        run.write_results(results)
        _write_card(run, given, results)
    changed = 1 - results["same"]
    if round(changed, 9) > settings.tolerance:
        raise TilthError(
            f"{run.path}: the model is there, but {changed:.1%} of {results['rows']:,} answers are "
            f"not those of {model}, and --tolerance is {settings.tolerance:.1%}: export with "
            "--precision float32, or give texts of the model's own domain, or a higher tolerance"
        )
    return results


def _default_texts(classifier: Classifier) -> list[dict[str, str]]:
    """Return the quickstart's sentences, for a model of pairs each with the next one."""
    texts = quickstart_sentences()
    if classifier.texts_per_input != 2:
        return [{"text": text} for text in texts]
    return [{"text_a": one, "text_b": two} for one, two in pairwise(texts)]


def _side_by_side(whole: Dataset, exported: Dataset) -> pa.Table:
    """Return each row's answers by the model and the exported one, and how far they are apart.

    A row's answer is its label, its labels, or the tags of its tokens; `difference` is the largest
    one of a label's probability.
    """
    answer = "tags" if "tags" in whole.column_names else "label"
    tables = [found.with_format("arrow")[:] for found in (whole, exported)]
    one, other = (table["probabilities"].combine_chunks() for table in tables)
    rows = np.flatnonzero(one.is_valid().to_numpy(zero_copy_only=False))
    if answer == "tags":
        rows = pc.list_parent_indices(one).to_numpy()
        one, other = one.flatten(), other.flatten()
    apart = np.abs(np.subtract(_matrix(one), _matrix(other))).max(axis=1)
    largest = np.zeros(len(whole))
    np.maximum.at(largest, rows, apart)
    return pa.table({
        "model": tables[0][answer], "exported": tables[1][answer], "difference": largest
    })  # fmt: skip


def _matrix(probabilities: pa.StructArray) -> NDArray[np.float64]:
    """Return probabilities by label name as numbers, without nulls, (rows, labels)."""
    return np.stack([column.to_numpy() for column in probabilities.drop_null().flatten()], axis=1)


def _results(run: Run) -> dict[str, Any]:
    """Return the figures of a finished run."""
    table = run.read_part(0).drop_null()  # without the rows that hold no text
    pairs = zip(table["model"].to_pylist(), table["exported"].to_pylist(), strict=True)
    same = [one == other for one, other in pairs]
    return {
        "rows": len(same),
        "same": sum(same) / len(same),
        "difference": pc.max(table["difference"]).as_py(),
        "bytes": (run.path / MODEL / ONNX).stat().st_size,
    }


def _write_card(run: Run, given: Classifier, results: Mapping[str, Any]) -> None:
    of_tokens = given.kind == "tags"
    card = _README.format(
        title="Tagger" if of_tokens else "Classifier",
        precision=run.settings["precision"],
        model=run.settings["model"],
        answers="answers, all tags of a text," if of_tokens else "answers",
        shape="(1, tokens, tags)" if of_tokens else "(1, labels)",
        example='"A text.", "Another."' if given.texts_per_input == 2 else '"A text."',
        longest=given.max_length,
        **results,
    )
    write_file(run.path / MODEL / "README.md", card)
