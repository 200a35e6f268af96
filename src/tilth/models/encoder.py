"""Load a sentence encoder by name: starter, folder, training run or hub id, with its pooling."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import torch

from tilth.errors import InputError
from tilth.limits import POOLING
from tilth.models import names
from tilth.models.device import choose_device
from tilth.models.pretrained import (
    DROPOUTS,
    ModelFiles,
    add_weight,
    architectures_of,
    is_generative,
    open_model,
)

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_OURS = "tilth.encoders.word_vectors.WordVectors"  # a module of tilth
_MODULE = re.compile(
    r"sentence_transformers\.(models|(base|sentence_transformer)\.modules)(\.[a-z_]+)?\."
    r"(Transformer|Pooling|Dense|Normalize|LayerNorm|Dropout|StaticEmbedding|WeightedLayerPooling)"
)
_CLASSIFYING = ("ForSequenceClassification", "ForTokenClassification")
_WITH_WEIGHTS = (".Dense", ".LayerNorm", ".StaticEmbedding", ".WeightedLayerPooling")
_ACTIVATION = re.compile(
    r"torch\.nn\.(modules\.(activation|linear)\.)?"
    r"(Identity|Tanh|ReLU|GELU|SiLU|Sigmoid|LeakyReLU|ELU|Mish)"
)
# Poolings of generative models that were trained as encoders.
_GENERATIVE_POOLINGS = ("lasttoken", "weightedmean")


def load_encoder(
    name: str,
    *,
    pooling: str | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    device: str = "auto",
) -> SentenceTransformer:
    """Load a sentence encoder by name, in float32.

    Args:
        name: `starter-mlm` (a small masked language model, to be trained), `starter-static`
            (token vectors, ready for similarity and very fast), `starter-encoder` (a transformer,
            trained to score paraphrases), a folder or hub id of a sentence-transformers model or
            of any transformers encoder, or a training run.
        pooling: of the token vectors: `mean`, `cls` (the first token's) or `max`. Default: as
            saved; `mean` for a plain transformers encoder.
        max_length: tokens of a text; default: as saved. A static encoder reads all.
        dropout: of training, in every part of the model; default: as saved. A static encoder has
            none.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.

    Raises:
        InputError: there is no such model, it is no encoder, or it is saved without pooling and
            none is given.
    """
    if pooling is not None:
        POOLING.check("pooling", pooling)
    place, name = choose_device(device), names.name_of(name)
    encoder = _load(_open(name), str(place), dropout)
    _set_pooling(encoder, name, pooling)
    if max_length is not None:
        _set_max_length(encoder, name, max_length)
    return encoder.eval()


def is_sentence_encoder(name: str) -> bool:
    """Return whether a model is an encoder; False if it has a head for texts or tags."""
    if names.name_of(name) in names.ENCODER.starters:
        return True
    files = _open(name)
    with files.reading():
        config = _read_json(files, "config.json")
        if config is None:  # of a static encoder, or of a hub id that cannot be reached
            return _read_json(files, "modules.json") is not None
        kinds = config.get("architectures") or []
        return not any(str(kind).endswith(_CLASSIFYING) for kind in kinds)


def _open(name: str) -> ModelFiles:
    folder = Path(name).expanduser()
    if (folder / "run.json").is_file():
        folder /= "model"
    is_saved = (folder / "modules.json").is_file()
    marker = "modules.json" if is_saved else "config.json"
    return open_model(name, names.ENCODER, marker=marker)


def _load(files: ModelFiles, device: str, dropout: float | None) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    with files.reading():
        modules = _checked_modules(files)
        if any(module["type"] == _OURS for module in modules):
            # sentence-transformers loads other classes than its own only with trust in any code.
            kinds = [resolve_name(each["type"]) for each in modules]
            loaded = [
                kind.load(files.source.name, subfolder=module["path"], **files.options)
                for kind, module in zip(kinds, modules, strict=True)
            ]
            encoder = SentenceTransformer(modules=loaded, device=device)
        else:
            encoder = SentenceTransformer(
                files.source.name,
                device=device,
                # Training and cosines are in float32 however the weights were saved.
                model_kwargs={
                    "dtype": torch.float32, "use_safetensors": True,
                    "ignore_mismatched_sizes": True,  # they are refused below
                },
                config_kwargs=None if dropout is None else dict.fromkeys(DROPOUTS, dropout),
                **files.options,
            )  # fmt: skip
        _check_files(encoder, files, modules)
        _refuse_generative(encoder)
    return encoder.float()  # static models keep the precision they are saved in


def _checked_modules(files: ModelFiles) -> list[dict[str, str]]:
    """Return the modules in modules.json, none for a plain transformers model.

    sentence-transformers imports and calls module classes and activations by name, so unknown names
    and pickled weights raise `ValueError`.
    """
    modules = _read_json(files, "modules.json")
    if modules is None:
        return []
    for module in modules:
        kind, folder = module["type"], module["path"]
        if ".." in Path(folder).parts or Path(folder).is_absolute():
            raise ValueError(f"modules.json names a path outside the model, {folder!r}")
        if kind != _OURS and not _MODULE.fullmatch(kind):
            raise ValueError(f"modules.json names the class {kind!r}: tilth loads no such module")
        if kind.endswith(_WITH_WEIGHTS) and _file(files, "model.safetensors", folder) is None:
            raise ValueError(
                f"module {folder!r} has no model.safetensors (pickled weights are not read)"
            )
        if kind.endswith(".Dense"):
            activation = (_read_json(files, "config.json", folder) or {}).get("activation_function")
            if activation is not None and not _ACTIVATION.fullmatch(activation):
                raise ValueError(
                    f"module {folder!r} names the activation function {activation!r}: tilth "
                    "loads no such function"
                )
    return list(modules)


def saved_pooling(name: str) -> str | None:
    """Return the pooling that a model is saved with; None if it is saved as no sentence encoder."""
    if name in names.CLASSIFIER.starters and name not in names.ENCODER.starters:
        return None
    files = _open(name)
    with files.reading():
        return pooling_of(files)


def pooling_of(files: ModelFiles) -> str | None:
    """Return an encoder's saved pooling; None if it was not saved as an encoder."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    for module in _read_json(files, "modules.json") or []:
        if str(module["type"]).endswith(".Pooling"):
            mode = Pooling.load_config(
                files.source.name,
                subfolder=module["path"],
                local_files_only=files.options["local_files_only"],
            ).get("pooling_mode")
            return mode if isinstance(mode, str) else None  # several: a list
    return None


def _file(files: ModelFiles, name: str, folder: str = "") -> str | None:
    from sentence_transformers.util import load_file_path

    local = files.options["local_files_only"]
    path: str | None = load_file_path(
        files.source.name, name, subfolder=folder, local_files_only=local
    )
    return path


def _read_json(files: ModelFiles, name: str, folder: str = "") -> Any:
    path = _file(files, name, folder)
    return None if path is None else json.loads(Path(path).read_text(encoding="utf-8"))


def _check_files(
    encoder: SentenceTransformer, files: ModelFiles, modules: list[dict[str, str]]
) -> None:
    """Refuse an encoder with missing weights or another model's tokenizer."""
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding, Transformer

    for index, module in enumerate(encoder):
        if isinstance(module, StaticEmbedding):
            files.check_tokenizer(module.tokenizer, module.embedding.weight)
        elif isinstance(module, Transformer):
            model = module.auto_model
            # On the meta device no weight is read: only the names and shapes are compared.
            _, found = type(model).from_pretrained(
                files.source.name, config=model.config, device_map="meta", use_safetensors=True,
                subfolder=modules[index]["path"] if modules else "", output_loading_info=True,
                ignore_mismatched_sizes=True, **{**files.options, "local_files_only": True},
            )  # fmt: skip
            found["missing_keys"] = {key for key in found["missing_keys"] if "pooler." not in key}
            files.check_weights(model, found, new_head=False)
            if module.tokenizer.pad_token_id is None:
                raise ValueError("its tokenizer has no padding token: set pad_token")
            files.check_tokenizer(module.tokenizer, model.get_input_embeddings().weight)


def _refuse_generative(encoder: SentenceTransformer) -> None:
    """Refuse a language model, unless its pooling shows that it was trained as an encoder."""
    model: Any = getattr(encoder[0], "auto_model", None)
    if (
        model is None
        or not is_generative(model.config)
        or type(model).__name__.endswith("EncoderModel")
    ):
        return
    pooled = {getattr(module, "pooling_mode", None) for module in encoder}
    if not pooled & set(_GENERATIVE_POOLINGS):
        raise ValueError(
            f"it is a generative language model ({architectures_of(model.config)}): give an "
            "encoder, such as a masked language model"
        )


def _set_pooling(encoder: SentenceTransformer, name: str, pooling: str | None) -> None:
    """Replace the saved pooling by the requested one; check that there is one."""
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    kinds = [type(module) for module in encoder]
    if Transformer not in kinds:  # word vectors and the like pool by themselves
        if pooling is not None:
            raise InputError(f"encoder {name!r} has no token vectors to pool: leave pooling out")
        return
    if pooling is None:
        if Pooling not in kinds and kinds[-1] is Transformer:
            raise InputError(
                f"encoder {name!r} is saved without pooling, its texts have no one vector: say "
                f"which, --pooling {POOLING}"
            )
        return
    transformer: Any = encoder[kinds.index(Transformer)]
    width = transformer.get_embedding_dimension()
    module = Pooling(width, pooling_mode=pooling).to(encoder.device)
    if Pooling in kinds:
        encoder[kinds.index(Pooling)] = module
    else:
        encoder.append(module)


def _set_max_length(encoder: SentenceTransformer, name: str, max_length: int) -> None:
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    if isinstance(encoder[0], StaticEmbedding):  # reads all tokens, and cannot be told otherwise
        return
    limit = encoder.max_seq_length
    if max_length < 3 or (limit is not None and max_length > limit):
        raise InputError(
            f"max_length is {max_length}: encoder {name!r} reads 3 to {limit or 'any number of'} "
            "tokens"
        )
    encoder.max_seq_length = max_length


def fingerprint_encoder(encoder: SentenceTransformer) -> str:
    """Return 16 hex digits over modules, vocabulary and weights, not device or precision."""
    digest = hashlib.blake2b(digest_size=8)
    for module in encoder.children():
        for known in (getattr(module, "tokenizer", None), getattr(module, "words", None)):
            if known is not None:
                words = known if isinstance(known, list) else sorted(known.get_vocab().items())
                digest.update(repr(words).encode())
        digest.update(type(module).__name__.encode())
        config: Any = getattr(module, "get_config_dict", dict)()
        digest.update(repr(sorted(config.items())).encode())
    for key, tensor in sorted(encoder.state_dict().items()):
        if ".pooler." not in key:  # unused by sentence vectors, and random where it was not saved
            add_weight(digest, key, tensor)
    return digest.hexdigest()
