"""From a name to a language model that writes: starter, folder, hub id or endpoint."""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tilth.errors import InputError
from tilth.models.device import choose_device, choose_precision

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from tilth.models.endpoint import Endpoint

log = logging.getLogger(__name__)

_SECONDS_TO_REACH_HUB = 5.0


@dataclass(frozen=True, slots=True)
class LM:
    """A loaded causal language model.

    Attributes:
        name: what the user asked for.
        model: the transformers model, in evaluation mode on its device.
        tokenizer: its tokenizer.
        fingerprint: changes when a weight or the vocabulary changes.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    fingerprint: str

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return torch.device(self.model.device)

    @property
    def precision(self) -> str:
        """`float32`, `bfloat16` or `float16`."""
        return str(self.model.dtype).removeprefix("torch.")


def load_lm(name: str, *, device: str = "auto", precision: str = "auto") -> LM | Endpoint:
    """Load a language model by name.

    Args:
        name: `starter`, a folder, a hub id, or an endpoint: `openai:http://host:port/v1#model`
            (completions), `openai-chat:http://host:port/v1#model` (chat).
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: `auto`, `float32`, `bfloat16` or `float16`.

    Raises:
        InputError: there is no such model, or it is not a causal language model in safetensors.
    """
    if name.startswith(("openai:", "openai-chat:")):
        from tilth.models.endpoint import load_endpoint

        return load_endpoint(name)
    place = choose_device(device)
    model, tokenizer = _load(name, place, choose_precision(precision, place))
    return LM(name, model, tokenizer, fingerprint_model(model, tokenizer))


def _load(name: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = _source(name)
    on_hub = source == name and not Path(name).is_dir()
    local = on_hub and not _hub_answers()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=local)
        model: Any = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, use_safetensors=True, local_files_only=local
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        if local:
            raise InputError(
                f"model {name!r}: no such folder here, not in the hub's cache, and the hub cannot "
                "be reached: check the name or the network"
            ) from error
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"model {name!r} does not load as a causal language model: {reason}"
        ) from error
    return model.to(device).eval(), tokenizer


def _hub_answers() -> bool:
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


def _source(name: str) -> str:
    """Return what `from_pretrained` takes, after the checks that need no network."""
    if name == "starter":
        return str(starter_path("lm"))
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(f"model folder {name!r} has no config.json: name a saved model folder")
        if not any(folder.glob("*.safetensors")):
            raise InputError(
                f"model folder {name!r} has no *.safetensors: save the model with "
                "save_pretrained (pickled weights are not read)"
            )
        return str(folder)
    looks_like_path = name.startswith((".", "/", "~")) or os.sep * 2 in name or "\\" in name
    if looks_like_path or name.count("/") > 1 or folder.exists():
        raise InputError(f"no model folder {name!r}: give a folder, a hub id or 'starter'")
    return name


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


def fingerprint_model(model: Any, tokenizer: Any) -> str:
    """Return 16 hex digits over every parameter's name, shape and a sample of its values.

    The device does not enter, the precision does: other rounding, other rows.
    """
    digest = hashlib.blake2b(digest_size=8)
    for key, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().reshape(-1)
        step = max(1, flat.numel() // 256)
        sample = flat[::step][:256].float().cpu().contiguous().numpy().tobytes()
        digest.update(f"{key}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(sample)
    for token, number in sorted(tokenizer.get_vocab().items()):
        digest.update(f"{token}\x1f{number}\x1e".encode())
    return digest.hexdigest()
