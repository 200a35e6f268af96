"""The figures of starter-mlm's card: STS before any training, mean-pooled and [CLS].

    python -m starter.training.mlm.measure --model starter-mlm --data ../shared/data

prints one JSON object for each pooling.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from starter.training.lm.sentences import DEFAULT_DATA

from tilth import evaluate_sts, load_encoder


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="starter-mlm")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    arguments = parser.parse_args()
    for pooling in ("mean", "cls"):
        encoder = load_encoder(arguments.model, pooling=pooling)
        scores = evaluate_sts(encoder, arguments.data / "sts", bootstrap=0)
        found = {name: round(score["spearman"], 2) for name, score in scores.items()}
        print(json.dumps({"pooling": pooling, **found}))


if __name__ == "__main__":
    main()
