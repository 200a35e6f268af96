"""Shared fixtures; tests are offline and use one thread, so that they share a machine well.

With TILTH_TEST_DEVICE=cuda, what the tests ask of a processor is done by a GPU.
"""

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TQDM_DISABLE", "1")  # as the command line sets it; read when imported

import pytest
import torch

import tilth.models.device as devices

DEVICE = os.environ.get("TILTH_TEST_DEVICE", "cpu")
if DEVICE == "cpu":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
else:  # before anything imports the function by its name
    choose_device = devices.choose_device
    devices.choose_device = lambda name: choose_device(DEVICE if name == "cpu" else name)

from tests.tiny import save_encoder, tiny_lm, tiny_static  # noqa: E402
from tilth.models.lm import LM  # noqa: E402

torch.set_num_threads(1)
# Tests kill processes, never the machine: no write has to reach the disk (10,000s of waits).
os.fsync = lambda fd: None
# Shells start background jobs with Ctrl-C ignored, which commands under test would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: workers must find the same names, gz holds the time."""
    return argname if isinstance(val, bytes) else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Take what stays out of garbage collection, which each training does several times."""
    global _seen
    seen = (item.path, len(sys.modules) // 100)
    if seen != _seen:
        _seen = seen
        gc.collect()
        gc.freeze()


def pytest_sessionfinish() -> None:
    """Let the interpreter clean up at its end."""
    gc.unfreeze()


_seen: tuple[Path, int] | None = None  # the file, and hundreds of modules


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a tiny BERT to train."""
    return str(save_encoder(tmp_path_factory.mktemp("base") / "bert"))


def use_quick_baselines(base: str, patch: pytest.MonkeyPatch) -> None:
    """Let a training's baselines begin with the tiny BERT, and SetFit see few pairs."""
    patch.setattr("tilth.workflows.baselines.STARTER", base)
    patch.setattr("tilth.encoders.setfit._ROUNDS", 1)


@pytest.fixture
def quick_baselines(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_quick_baselines(base, monkeypatch)


@pytest.fixture(scope="session")
def static(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a tiny static encoder: a name that a bank finds it by."""
    folder = str(tmp_path_factory.mktemp("static") / "static")
    tiny_static().save(folder)
    return folder


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """Take back what commands do to the log: pytest's own handlers stay from test to test."""
    root = logging.getLogger()
    handlers = list(root.handlers)
    filters = [list(handler.filters) for handler in handlers]
    yield
    for handler, before in zip(handlers, filters, strict=True):
        handler.filters[:] = before
    for handler in set(root.handlers) - set(handlers):
        if type(handler) is logging.StreamHandler:  # of a command; its stream is gone
            root.removeHandler(handler)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Refuse a test that leaves several threads: waiting in loops, they slow all later tests."""
    yield
    assert torch.get_num_threads() == 1


@pytest.fixture(scope="session")
def gpt2() -> LM:
    """Return a tiny GPT-2."""
    return tiny_lm("gpt2")


@pytest.fixture(scope="session")
def llama() -> LM:
    """Return a tiny Llama: rotary positions, grouped-query attention; it often closes texts."""
    return tiny_lm("llama")


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach servers of a test directly, without a key."""
    for name in ("OPENAI_API_KEY", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
