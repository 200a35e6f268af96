"""Make the training data a small language model is missing."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilth.bank import Bank, task_queries
    from tilth.classifiers.mlm import adapt
    from tilth.data.curate import curate
    from tilth.encoders.bi_encoder import train_encoder
    from tilth.encoders.simcse import train_simcse
    from tilth.encoders.triplet import train_triplet
    from tilth.evaluate.classify import evaluate_classifier
    from tilth.evaluate.sts import evaluate_sts
    from tilth.evaluate.tag import evaluate_tagger
    from tilth.generation.generate import generate
    from tilth.generation.task import load_task
    from tilth.models import load_encoder, load_lm, load_scorer
    from tilth.models.classifier import load_classifier
    from tilth.paraphrase.paraphrase_set import paraphrase_set
    from tilth.paraphrase.rewriter import load_paraphraser
    from tilth.paraphrase.train import train_rewriter
    from tilth.runs.cluster import Cluster
    from tilth.workflows.augment import augment
    from tilth.workflows.export import export
    from tilth.workflows.grow.grow import grow
    from tilth.workflows.predict import predict
    from tilth.workflows.train_classifier import train_classifier, train_tagger

__all__ = [
    "Bank", "Cluster", "adapt", "augment", "curate", "evaluate_classifier", "evaluate_sts",
    "evaluate_tagger", "export", "generate", "grow", "load_classifier", "load_encoder", "load_lm",
    "load_paraphraser", "load_scorer", "load_task", "paraphrase_set", "predict", "task_queries",
    "train_classifier", "train_encoder", "train_rewriter", "train_simcse", "train_tagger",
    "train_triplet",
]  # fmt: skip

# PyTorch on a processor keeps compiled products by their shapes, 1,024 of each of two kinds: half a
# gigabyte where lengths differ, though so many are as fast. It reads these once, at first use.
for _kept in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_kept, "256")

# Public name -> where it lives: `import tilth` loads nothing heavy.
_HOMES = {
    "Bank": "tilth.bank",
    "Cluster": "tilth.runs.cluster",
    "adapt": "tilth.classifiers.mlm",
    "augment": "tilth.workflows.augment",
    "curate": "tilth.data.curate",
    "evaluate_classifier": "tilth.evaluate.classify",
    "evaluate_sts": "tilth.evaluate.sts",
    "evaluate_tagger": "tilth.evaluate.tag",
    "export": "tilth.workflows.export",
    "generate": "tilth.generation.generate",
    "grow": "tilth.workflows.grow.grow",
    "load_classifier": "tilth.models.classifier",
    "load_encoder": "tilth.models",
    "load_lm": "tilth.models",
    "load_paraphraser": "tilth.paraphrase.rewriter",
    "load_scorer": "tilth.models",
    "load_task": "tilth.generation.task",
    "paraphrase_set": "tilth.paraphrase.paraphrase_set",
    "predict": "tilth.workflows.predict",
    "task_queries": "tilth.bank",
    "train_classifier": "tilth.workflows.train_classifier",
    "train_encoder": "tilth.encoders.bi_encoder",
    "train_rewriter": "tilth.paraphrase.train",
    "train_simcse": "tilth.encoders.simcse",
    "train_tagger": "tilth.workflows.train_classifier",
    "train_triplet": "tilth.encoders.triplet",
}


def __getattr__(name: str) -> Any:
    """Import a public name's home when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tilth' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
