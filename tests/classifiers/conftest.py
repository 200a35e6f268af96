from __future__ import annotations

import pytest

from tests.tiny import save_encoder


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny BERT to fine-tune."""
    return str(save_encoder(tmp_path_factory.mktemp("base") / "bert"))
