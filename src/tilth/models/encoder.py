"""From a name to a sentence encoder: starter, folder or hub id, with its pooling."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tilth.errors import InputError
from tilth.limits import POOLING
from tilth.models.device import choose_device
from tilth.models.fingerprint import sampled_values
from tilth.models.source import Source, find_source, hub_answers, not_reached

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_STARTERS = {"starter": "encoder", "starter-static": "static", "starter-scorer": "scorer"}
# The end of an architecture's name when the model writes instead of reading.
_WRITERS = ("ForCausalLM", "LMHeadModel")
# How sentences' vectors come from such a model when it was trained to give them.
_WRITERS_POOLINGS = ("lasttoken", "weightedmean")


def load_encoder(
    name: str,
    *,
    pooling: str | None = None,
    max_length: int | None = None,
    device: str = "auto",
) -> SentenceTransformer:
    """Load a sentence encoder by name, in float32.

    Args:
        name: `starter` (a small masked language model, to be trained), `starter-static` (word
            pieces' vectors, ready for similarity and very fast), `starter-scorer` (a transformer,
            trained to score paraphrases), a folder or a hub id, of a sentence-transformers model
            or of any transformers encoder, such as a masked language model; or the run of a
            training.
        pooling: how a sentence's vector comes from its tokens' vectors: `mean`, `cls` (the first
            token's) or `max`. Default: as saved; `mean` for a plain transformers encoder.
        max_length: tokens read of a text; default: as saved.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.

    Raises:
        InputError: there is no such model, it is no encoder, or it is saved without pooling and
            none is given.
    """
    if pooling is not None:
        POOLING.check("pooling", pooling)
    place = choose_device(device)
    source = _source(name)
    local = source.on_hub and not hub_answers()
    try:
        encoder = _load(source, str(place), local)
    except (OSError, ValueError, KeyError, ImportError, AttributeError, RuntimeError) as error:
        if local:
            raise not_reached(name) from error
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"encoder {name!r} does not load: {reason}") from error
    _set_pooling(encoder, name, pooling)
    if max_length is not None:
        _set_max_length(encoder, name, max_length)
    return encoder.eval()


def _source(name: str) -> Source:
    folder = Path(name).expanduser()
    if (folder / "run.json").is_file():
        if not (folder / "model" / "modules.json").is_file():
            raise InputError(
                f"{name}: the run holds no trained encoder: name the run of a finished "
                "`tilth train encoder`"
            )
        return Source(str(folder / "model"), on_hub=False)
    saved = folder / "modules.json"
    return find_source(
        name, starters=_STARTERS, marker="modules.json" if saved.is_file() else "config.json"
    )


def _load(source: Source, device: str, local: bool) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    with quietly():
        # Training and cosines are in float32 however the weights were saved.
        encoder = SentenceTransformer(
            source.name,
            device=device,
            local_files_only=local,
            trust_remote_code=not source.on_hub and _is_ours(Path(source.name)),
            model_kwargs={"dtype": torch.float32, "use_safetensors": True},
        )
    _refuse_writers(encoder)
    return encoder.float()  # static models keep the precision they are saved in


def _is_ours(folder: Path) -> bool:
    """Tell whether a folder needs classes of tilth's and names no code of its own.

    sentence-transformers asks for trust wherever a module's class is not its own; these are
    installed here. Anything that could lead to other code is not trusted.
    """
    saved = folder / "modules.json"
    if not saved.is_file() or any(folder.rglob("*.py")):
        return False
    kinds = [str(module.get("type")) for module in json.loads(saved.read_text(encoding="utf-8"))]
    known = [kind.startswith(("sentence_transformers.", "tilth.encoders.")) for kind in kinds]
    return (
        all(known)
        and any(kind.startswith("tilth.encoders.") for kind in kinds)
        and not any("auto_map" in file.read_text("utf-8") for file in folder.rglob("*.json"))
    )


@contextmanager
def quietly() -> Iterator[None]:
    """Keep transformers quiet: no bars, no word about a head that an encoder does without."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    bar = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bar:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _refuse_writers(encoder: SentenceTransformer) -> None:
    """Refuse a language model, unless its pooling says that it was made an encoder."""
    config: Any = getattr(getattr(encoder[0], "auto_model", None), "config", None)
    kinds = getattr(config, "architectures", None) or []
    if not getattr(config, "is_decoder", False) and not any(k.endswith(_WRITERS) for k in kinds):
        return
    pooled = {getattr(module, "pooling_mode", None) for module in encoder}
    if not pooled & set(_WRITERS_POOLINGS):
        raise ValueError(
            f"it is a language model that writes ({', '.join(kinds) or config.model_type}): give "
            "an encoder, such as a masked language model"
        )


def _set_pooling(encoder: SentenceTransformer, name: str, pooling: str | None) -> None:
    """Put the pooling asked for in place of the saved one; check that there is one."""
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
    limit = encoder.max_seq_length
    if max_length < 3 or (limit is not None and max_length > limit):
        raise InputError(
            f"max_length is {max_length}: encoder {name!r} reads 3 to {limit or 'any number of'} "
            "tokens"
        )
    encoder.max_seq_length = max_length


def fingerprint_encoder(encoder: SentenceTransformer) -> str:
    """Return 16 hex digits over every module's kind and a sample of its weights.

    Of a static model its pieces and all of its weights enter: little else tells such models
    apart. Neither the device nor the precision enters.
    """
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    digest = hashlib.blake2b(digest_size=8)
    for module in encoder:
        if isinstance(module, StaticEmbedding):
            digest.update(repr(sorted(module.tokenizer.get_vocab().items())).encode())
            digest.update(module.embedding.weight.detach().float().cpu().numpy().tobytes())
        digest.update(type(module).__name__.encode())
        config: Any = getattr(module, "get_config_dict", dict)()
        digest.update(repr(sorted(config.items())).encode())
    for key, tensor in sorted(encoder.state_dict().items()):
        if ".pooler." in key:  # BERT's own pooling serves no sentence vector, and where it was not
            continue  # saved it is random: another one in every process
        digest.update(f"{key}{tuple(tensor.shape)}".encode())
        digest.update(sampled_values(tensor))
    return digest.hexdigest()
