"""What architectures call their parts: dropouts, the output layer, positions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_VALUES = 256


def weight_bytes(tensor: Tensor) -> memoryview:
    """Return all of a tensor's values as bytes: a fingerprint sees a change of any of them.

    Hashing takes about a second for each gigabyte of weights.
    """
    flat = tensor.detach().cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy().data  # (bytes,)


def sampled_values(tensor: Tensor) -> bytes:
    """Return up to 256 values spread over a tensor, as float32."""
    flat = tensor.detach().reshape(-1)
    step = max(1, flat.numel() // _VALUES)
    return flat[::step][:_VALUES].float().cpu().contiguous().numpy().tobytes()


# What architectures call their dropouts.
_DROPOUTS = (
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob",
    "dropout", "attention_dropout", "activation_dropout", "embedding_dropout", "mlp_dropout",
    "classifier_dropout", "seq_classif_dropout", "pooler_dropout", "cls_dropout",
    "summary_last_dropout",
)  # fmt: skip
_LONGEST = 512  # tokens, for a model that names no limit
# Kinds whose first positions stand for padding.
_SHIFTED = (
    "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "longformer", "data2vec-text", "mpnet",
)  # fmt: skip

# The end of an architecture's name when the model writes instead of reading.
_WRITERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


def architectures_of(config: Any) -> str:
    """Return the architectures that a model was saved as, to be named in a message."""
    return ", ".join(map(str, getattr(config, "architectures", None) or [config.model_type]))


def is_generative(config: Any) -> bool:
    """Tell whether a model writes instead of reading."""
    kinds = getattr(config, "architectures", None) or []
    return bool(
        getattr(config, "is_decoder", False) or any(str(kind).endswith(_WRITERS) for kind in kinds)
    )


def set_dropout(config: Any, dropout: float) -> None:
    """Set every dropout of a model that is still to be made."""
    for name in _DROPOUTS:
        if hasattr(config, name):
            setattr(config, name, dropout)


def reinit_head(model: Any) -> set[str]:
    """Draw the output layer anew, were it that of another task; return its weights' names."""
    name, output = [
        (name, module) for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    ][-1]  # fmt: skip
    torch.nn.init.normal_(output.weight, std=getattr(model.config, "initializer_range", 0.02))
    if output.bias is None:
        return {f"{name}.weight"}
    torch.nn.init.zeros_(output.bias)
    return {f"{name}.weight", f"{name}.bias"}


def max_input_tokens(config: Any, tokenizer: Any) -> int:
    """Return how many tokens a model reads, those that mark begin and end counted."""
    positions = getattr(config, "max_position_embeddings", None) or _LONGEST
    if config.model_type in _SHIFTED:
        positions -= (config.pad_token_id or 0) + 1
    return int(min(positions, tokenizer.model_max_length))
