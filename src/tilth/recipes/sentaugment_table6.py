"""SentAugment, Table 6: the space that sentences are retrieved in."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tilth.bank import Bank, Rules
from tilth.errors import InputError
from tilth.files import atomic_write
from tilth.recipes.ablation import HEAD, Way, compare
from tilth.recipes.sentaugment import open_bank
from tilth.recipes.steps import Result, Steps
from tilth.workflows.open_bank import build_named
from tilth.workflows.table import published

WORDS, USIF, STATIC, TRANSFORMER = (
    "average of word vectors", "uSIF of word vectors", "static encoder", "transformer encoder"
)  # fmt: skip
PUBLISHED = [
    published("average of word2vec", HEAD, [59.4, 95.2, 92.9]),
    published("uSIF (ParaNMT)", HEAD, [59.9, 95.0, 93.1]),
    published("SASE", HEAD, [60.4, 95.7, 93.1]),
]
# Of the bank's sentences one in so many is encoded by every encoder.
_SHARE = 16


def run(steps: Steps) -> Result:
    """Retrieve from banks of the same sentences by different encoders."""
    vectors = _vectors(steps.data / "words")
    # all-MiniLM-L6-v2 with fewer pieces, as it is shipped to score paraphrases.
    encoder = steps.scale.encoder
    transformer = "starter-encoder" if encoder == "starter-static" else encoder
    ways = [
        _way(name, encoder)
        for name, encoder in (
            (WORDS, f"words:{vectors}"), (USIF, f"usif:{vectors}"), (STATIC, "starter-static"),
            (TRANSFORMER, transformer),
        )
    ]  # fmt: skip
    return compare(steps, "SentAugment, Table 6", ways, PUBLISHED, over=WORDS)


def _way(name: str, encoder: str) -> Way:
    step = Path(encoder.partition(":")[0]).name
    return Way(name, f"by-{step}", bank=partial(_bank, encoder=encoder, step=step))


def _vectors(folder: Path) -> Path:
    files = sorted(folder.glob("*.txt*")) if folder.is_dir() else []
    if not files:
        raise InputError(f"{folder}: holds no word vectors: put a file such as glove.txt.gz there")
    return max(files, key=lambda file: file.stat().st_size)


def _bank(steps: Steps, *, encoder: str, step: str) -> Bank:
    """Build a bank of a part of all sentences."""
    sentences = steps.folder / "steps" / "bank-sample.txt"
    if not sentences.is_file():
        whole = open_bank(steps)
        texts = (text for number, text in enumerate(whole) if number % _SHARE == 0)
        atomic_write(
            sentences, lambda file: file.writelines(f"{text}\n".encode() for text in texts)
        )
    return build_named(
        steps.at(f"bank-{step}"), [str(sentences)], encoder=encoder, format="int8", rules=Rules(),
        near=False, column=None, split="train", seed=0, shard_megabytes=16, workers=None,
        device=steps.settings.device, overwrite=False, quiet=steps.settings.quiet,
    )  # fmt: skip
