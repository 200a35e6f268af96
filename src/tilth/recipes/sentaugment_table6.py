"""SentAugment, Table 6: the space that sentences are retrieved in."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tilth.bank import Bank, Rules
from tilth.errors import InputError
from tilth.files import write_whole
from tilth.recipes.ablation import HEAD, SCALES, STEPS, Way, compare
from tilth.recipes.banking import build_named
from tilth.recipes.selftraining import NEEDS, SOURCE, open_bank
from tilth.recipes.steps import Recipe, Result, Steps
from tilth.recipes.table import published

WORDS, USIF, STATIC, TRANSFORMER = (
    "average of word vectors", "uSIF of word vectors", "static encoder", "transformer encoder"
)  # fmt: skip
PUBLISHED = [
    published("average of word2vec", HEAD, [59.4, 95.2, 92.9, 82.5]),
    published("uSIF (ParaNMT)", HEAD, [59.9, 95.0, 93.1, 82.7]),
    published("SASE", HEAD, [60.4, 95.7, 93.1, 83.1]),
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
    step = encoder.partition(":")[0]
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
        write_whole(sentences, lambda file: file.writelines(f"{text}\n".encode() for text in texts))
    return build_named(
        steps.at(f"bank-{step}"), [str(sentences)], encoder=encoder, format="int8", rules=Rules(),
        near=False, column=None, split="train", seed=0, shard_megabytes=16, workers=None,
        device=steps.device, overwrite=False, quiet=steps.quiet,
    )  # fmt: skip


RECIPE = Recipe(
    name="sentaugment-table6",
    title="Retrieval in the space of different sentence encoders",
    source=f"{SOURCE}, Table 6",
    steps=(*STEPS[:1], f"encode every {_SHARE}th of its sentences with each encoder", *STEPS[1:]),
    needs=f"{NEEDS}; words/ with word vectors in text form",
    scales=SCALES,
    run=run,
)
