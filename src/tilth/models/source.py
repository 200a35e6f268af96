"""Where a model's files are (shipped, a folder, the hub), and the one way to read them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.errors import InputError, TilthError
from tilth.files import check_input

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

_SECONDS_TO_REACH_HUB = 5.0
_OTHER_FILES = "its files do not belong together, or are damaged: get or save the model again"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model's files are.

    Attributes:
        name: what `from_pretrained` takes, a folder or a hub id.
        on_hub: whether it is a hub id.
    """

    name: str
    on_hub: bool


def find_source(
    name: str,
    *,
    starters: Mapping[str, str],
    marker: str = "config.json",
    trained_by: str | None = None,
) -> Source:
    """Find out what a name stands for, as far as that needs no network.

    Args:
        name: one of `starters`, a folder or a hub id.
        starters: the names of shipped models here, and their folders, such as `starter`, `lm`.
        marker: the file that a model folder has.
        trained_by: the command whose run folders are accepted too, such as `tilth train`.

    Raises:
        InputError: it is a path and there is no such model folder.
    """
    if name in starters:
        return Source(str(starter_path(starters[name])), on_hub=False)
    folder = Path(name).expanduser()
    check_input(folder)
    if trained_by is not None and (folder / "run.json").is_file():
        folder = folder / "model"
        if not (folder / marker).is_file():
            raise InputError(
                f"{name}: the run holds no trained model: name the run of a finished `{trained_by}`"
            )
    if folder.is_dir():
        if not (folder / marker).is_file():
            raise InputError(f"model folder {name!r} has no {marker}: name a saved model folder")
        if marker == "config.json" and not any(folder.glob("*.safetensors")):
            raise InputError(
                f"model folder {name!r} has no *.safetensors: save the model with "
                "save_pretrained (pickled weights are not read)"
            )
        for path in folder.rglob("*"):
            if not (path.is_file() or path.is_dir()):  # a pipe would be waited for
                raise InputError(f"model {name!r}: {path.name} is no file: save the model again")
        return Source(str(folder), on_hub=False)
    known = ", ".join(starters)
    if name.startswith("starter") and "/" not in name:
        raise InputError(f"no model {name!r} is shipped for this: there are {known}")
    looks_like_path = name.startswith((".", "/", "~")) or os.sep * 2 in name or "\\" in name
    if looks_like_path or name.count("/") > 1 or folder.exists():
        raise InputError(f"no model folder {name!r}: give a folder, a hub id or one of {known}")
    return Source(name, on_hub=True)


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a model, to be read.

    No code of the model's ever runs, no pickle is read, and whatever is wrong with the files is
    one line.

    Attributes:
        name: what the user asked for.
        source: where they are.
        what: what they must hold, such as `a causal language model`.
        options: what every loader of transformers or sentence-transformers is given.
    """

    name: str
    source: Source
    what: str
    options: dict[str, Any]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn any error while the files are read into one line.

        Raises:
            InputError: the files could not be read.
        """
        try:
            with silence_transformers():
                yield
        except (TilthError, MemoryError):
            raise
        except Exception as error:  # a folder's files are input: they can break a library anywhere
            if self.options["local_files_only"]:
                raise InputError(
                    f"model {self.name!r}: no such folder here, not in the hub's cache, and the "
                    "hub cannot be reached: check the name or the network"
                ) from error
            raise InputError(
                f"model {self.name!r} does not load as {self.what}: {_reason(error)}"
            ) from error

    def config(self) -> Any:
        """Read the model's config."""
        from transformers import AutoConfig

        with self.reading():
            return AutoConfig.from_pretrained(self.source.name, **self.options)

    def tokenizer(self) -> Any:
        """Read the model's tokenizer."""
        from transformers import AutoTokenizer

        with self.reading():
            return AutoTokenizer.from_pretrained(self.source.name, **self.options)

    def model(
        self,
        kind: Any,
        tokenizer: Any,
        *,
        config: Any = None,
        dtype: torch.dtype | None = None,
        new_head: bool = False,
    ) -> tuple[Any, list[str]]:
        """Read the model's weights.

        Args:
            kind: an Auto class of transformers.
            tokenizer: of the model; it must know no token that the model does not.
            config: in place of the saved one.
            dtype: of the weights; default: float32.
            new_head: accept a head that the files lack, or hold in another shape; its weights are
                drawn from torch's random numbers.

        Returns:
            The model on the CPU, and the names of the weights that were drawn.

        Raises:
            InputError: the files do not hold the model's weights.
        """
        import torch

        given = {} if config is None else {"config": config}
        with self.reading():
            model, found = kind.from_pretrained(
                self.source.name, dtype=dtype or torch.float32, use_safetensors=True,
                output_loading_info=True, ignore_mismatched_sizes=True, **given, **self.options,
            )  # fmt: skip
        drawn = self.check_weights(model, found, new_head=new_head)
        self.check_tokenizer(tokenizer, model.get_input_embeddings().weight)
        return model, drawn

    def check_weights(self, model: Any, found: Mapping[str, Any], *, new_head: bool) -> list[str]:
        """Return which of a model's weights are drawn; refuse any but those of a new head.

        Args:
            model: a model of transformers.
            found: what loading it told.
            new_head: accept a head that the files lack, or hold in another shape.
        """
        body = f"{model.base_model_prefix}."
        lacking = {str(key) for key in found["missing_keys"]}
        shapes = {str(key): (saved, ours) for key, saved, ours in found["mismatched_keys"]}
        for key in sorted({*lacking, *shapes}):
            # What pools the first token belongs to the head of whatever BERT was trained for.
            if new_head and (not key.startswith(body) or ".pooler." in key):
                continue
            if key in shapes:
                saved, ours = (tuple(shape) for shape in shapes[key])
                problem = f"its weight {key} has the shape {saved}, its config.json says {ours}"
            else:
                problem = f"its weights hold no {key}"
            raise InputError(
                f"model {self.name!r} does not load as {self.what}: {problem}: {_OTHER_FILES}"
            )
        return sorted({*lacking, *shapes})

    def check_tokenizer(self, tokenizer: Any, embeddings: torch.Tensor) -> None:
        """Refuse a tokenizer without words, or with tokens that the model has no embedding of.

        Args:
            tokenizer: of transformers, which makes one of special tokens alone where a folder has
                none, or of tokenizers.
            embeddings: of the model. # (tokens, width)
        """
        vocabulary = tokenizer.get_vocab()
        if set(vocabulary) <= set(getattr(tokenizer, "all_special_tokens", ())):
            raise InputError(
                f"model {self.name!r} has no tokenizer: save the model's own beside its weights"
            )
        largest = max(vocabulary.values(), default=0)
        if largest >= len(embeddings):
            raise InputError(
                f"model {self.name!r}: its tokenizer has token ids up to {largest}, the model "
                f"embeddings for {len(embeddings)} tokens: {_OTHER_FILES}"
            )


def open_files(
    name: str,
    *,
    what: str,
    starters: Mapping[str, str],
    marker: str = "config.json",
    trained_by: str | None = None,
) -> Files:
    """Find a model's files, see `find_source`; a hub id without a network is read from its cache.

    Args:
        name: one of `starters`, a folder or a hub id.
        what: what the files must hold, such as `a causal language model`.
        starters: the names of shipped models here, and their folders.
        marker: the file that a model folder has.
        trained_by: the command whose run folders are accepted too.

    Raises:
        InputError: it is a path and there is no such model folder.
    """
    source = find_source(name, starters=starters, marker=marker, trained_by=trained_by)
    # Left unset, trust_remote_code makes transformers ask on standard input.
    options = {
        "trust_remote_code": False,
        "local_files_only": source.on_hub and not hub_answers(),
    }
    return Files(name, source, what, options)


def _reason(error: Exception) -> str:
    """Return what a library says, on one line, without its advice to trust a model's code."""
    said = " ".join(str(error).split())
    if "trust_remote_code" in said:
        return (
            "it needs code of its own, which tilth never runs: give a model of an architecture "
            "that transformers has"
        )
    return f"{said or type(error).__name__}"[:300]


@contextmanager
def silence_transformers() -> Iterator[None]:
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


def hub_answers() -> bool:
    """Ask the hub once: without a network its client would retry for a minute."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=_SECONDS_TO_REACH_HUB)
    except Exception as error:  # the client's own errors, of whichever http library it uses
        log.info("the hub does not answer (%s): only its cache is looked at", error)
        return False
    return True


def starter_path(kind: str) -> Path:
    """Return the folder of a shipped starter model, such as `lm`.

    Raises:
        InputError: the distribution tilth-starter is not installed.
    """
    try:
        import tilth_starter
    except ImportError:
        raise InputError(
            "the starter models are not installed: pip install tilth-starter "
            "(in a clone: pip install ./starter)"
        ) from None
    try:
        return Path(tilth_starter.path(kind))
    except ValueError as error:
        raise InputError(f"{error}: install tilth-starter again") from None
