"""The forward pass of a batch in training: texts of similar lengths together."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.base.losses.merged_forward import embed_columns, merge_feature_batches
from torch import Tensor

from tilth.models.unpadded import is_unpadded

_CUDA_CHUNK = 4096  # texts of similar lengths in a forward pass on a GPU
_MULTIPLE = 8  # of a chunk's length: few shapes, so few cached kernels


def embed_by_length(
    model: Any, features: list[dict[str, Tensor]], *, processor_chunk: int = 32
) -> list[Tensor]:
    """Return the vectors of each column's texts, each (rows, width).

    Texts of similar lengths pass together, so that little padding is computed; where none is, all
    texts do.

    Args:
        processor_chunk: texts in a forward pass on a processor, where padding is computed.
    """
    merged = merge_feature_batches(features)
    if merged is None or "attention_mask" not in merged:  # of static vectors
        return embed_columns(model, features, separate_first=False)
    if is_unpadded(model):
        return list(model(merged)["sentence_embedding"].chunk(len(features)))
    mask = merged["attention_mask"]  # (texts, tokens)
    lengths = mask.sum(1).cpu()  # (texts,)
    first = mask.int().argmax(1)  # token of each text, where tokenizers pad on the left
    order = lengths.argsort()
    vectors = []
    is_cuda = mask.device.type == "cuda"
    for chunk in order.split(_CUDA_CHUNK if is_cuda else processor_chunk):
        width = min(-(-int(lengths[chunk[-1]]) // _MULTIPLE) * _MULTIPLE, mask.shape[1])
        rows = chunk.to(mask.device)[:, None]
        columns = (first[rows] + torch.arange(width, device=mask.device)) % mask.shape[1]
        part = {
            name: value[rows, columns] if isinstance(value, Tensor) else value
            for name, value in merged.items()
        }
        vectors.append(model(part)["sentence_embedding"])
    joined = torch.cat(vectors)[order.argsort().to(vectors[0].device)]  # (texts, width)
    return list(joined.chunk(len(features)))
