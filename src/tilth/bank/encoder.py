"""Encode sentences with any encoder: static ones at full speed, others in their own batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.bank.manifest import ENCODER, Manifest
from tilth.errors import InputError, TilthError
from tilth.models.static import StaticEncoder, fast_static, read_static
from tilth.runs.cluster import check_fingerprints

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tilth.runs import Progress


class TextEncoder:
    """An encoder as a bank uses it.

    Attributes:
        static: fast encoder of a static model, cheap enough to go to every worker; else None.
    """

    def __init__(
        self, encoder: SentenceTransformer | StaticEncoder, name: str, device: str = "auto"
    ) -> None:
        self.name, self._device = name, device
        if isinstance(encoder, StaticEncoder):
            self.static: StaticEncoder | None = encoder
            self.fingerprint, self.dimension = encoder.fingerprint, encoder.dimension
        else:
            from tilth.models.encoder import fingerprint_encoder

            self.model = encoder
            self.fingerprint = fingerprint_encoder(encoder)
            dimension = encoder.get_embedding_dimension()
            if not dimension:
                raise InputError(
                    f"encoder {name!r} does not say how long its vectors are: use another"
                )
            self.dimension = int(dimension)
            self.static = fast_static(encoder)
        if self.static is not None and not np.isfinite(self.static.vectors).all():
            raise TilthError(f"encoder {name!r} has weights that are not finite: use another")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name: a worker of a cluster loads the model."""
        return _load_again, (self.name, self.fingerprint)

    @cached_property
    def model(self) -> SentenceTransformer:
        """Return the model; one that was read without torch is loaded now."""
        from tilth.models.encoder import load_encoder

        return load_encoder(self.name, device=self._device)

    @classmethod
    def load(
        cls, encoder: str | Path | SentenceTransformer | TextEncoder, *, device: str = "auto"
    ) -> TextEncoder:
        """Load an encoder by name, or wrap a loaded one."""
        if isinstance(encoder, TextEncoder):
            return encoder
        if isinstance(encoder, Path):
            encoder = str(encoder)
        if not isinstance(encoder, str):
            described = getattr(encoder.model_card_data, "base_model", None)
            return cls(encoder, str(described or type(encoder).__name__))
        if encoder == "starter":  # the name that stays the same model
            encoder = "starter-encoder"
        if (static := read_static(encoder, device)) is not None:
            return cls(static, encoder, device)
        from tilth.models.encoder import load_encoder

        return cls(load_encoder(encoder, device=device), encoder)

    def encode(
        self, texts: pa.Array | Sequence[str], progress: Progress | None = None
    ) -> NDArray[np.float32]:
        """Return unit vectors, (texts, dimension); zero where the encoder knows no word."""
        if isinstance(texts, pa.ChunkedArray):
            texts = texts.combine_chunks()
        if self.static is None:
            from tilth.models.embed import embed, unit  # not above: static encoders need no torch

            rows = texts.to_pylist() if isinstance(texts, pa.Array) else list(texts)
            vectors = unit(embed(self.model, rows, progress=progress))
        else:
            vectors = self.static.encode(texts)
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            text = str(texts[int(np.argmin(finite))])
            raise TilthError(
                f"encoder {self.name!r} gives no finite vector for {text!r:.200}: its weights may "
                "be broken; use another"
            )
        if progress is not None and self.static is not None:
            progress.advance(len(texts))
        return vectors


def _load_again(name: str, fingerprint: str) -> TextEncoder:
    """Load a pickled encoder."""
    found = TextEncoder.load(name)
    check_fingerprints({f"encoder {name}": found.fingerprint}, {f"encoder {name}": fingerprint})
    return found


def load_bank_encoder(
    path: Path,
    manifest: Manifest,
    encoder: str | SentenceTransformer | TextEncoder | None,
    *,
    device: str,
) -> TextEncoder:
    """Load the encoder of a bank; None: the one that the manifest names."""
    if encoder is not None:
        found = TextEncoder.load(encoder, device=device)
    else:
        name = manifest.encoder
        if name == "starter":  # as it was called in banks before the starters were renamed
            name = "starter-static"
        try:
            if (path / ENCODER / "modules.json").is_file():  # fitted on the bank's own sentences
                from tilth.models.encoder import load_encoder

                found = TextEncoder(load_encoder(str(path / ENCODER), device="cpu"), name)
            else:
                found = TextEncoder.load(name, device=device)
        except InputError as error:
            raise InputError(
                f"{path}: its encoder {name!r} does not load ({error}): open the bank with "
                "the encoder that it was built with"
            ) from error
    if found.dimension != manifest.dimension:
        raise InputError(
            f"{path}: its vectors have {manifest.dimension} dimensions, those of encoder "
            f"{found.name!r} {found.dimension}: use {manifest.encoder!r}, or build a bank "
            "with this one"
        )
    if found.fingerprint != manifest.fingerprint:
        raise InputError(
            f"{path}: was built with another encoder ({manifest.encoder!r}, fingerprint "
            f"{manifest.fingerprint}; {found.name!r} has {found.fingerprint}): name the one it was "
            "built with, or build a bank with this one"
        )
    return found
