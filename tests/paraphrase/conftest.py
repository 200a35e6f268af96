from functools import partial

import pytest

from tests.tiny.rewriter import Fake, fake_rewriter


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Return what makes a rewriter without a model: the outputs and, optionally, the scores."""
    return partial(fake_rewriter, monkeypatch)
