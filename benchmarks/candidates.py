"""What the choice among candidates adds to the quality of labels, with and without self-debiasing.

    python benchmarks/candidates.py --data DIR [--inputs 300] [--candidates 4 8] [--decay 0 100]

Writes pairs of the task sts-x2 for sentences of DIR/sts/stsb-dev. For each input it takes the share
of its pairs of adjacent labels (1 and 0.5, 0.5 and 0) that are in the right order: the pair of the
higher label is the more similar one by starter-encoder's cosine. Prints the mean over the inputs
and the gain over one candidate at the same decay, with its 95% interval (Student's t over inputs).
"""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import pairwise, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import tilth
from few_labels import words
from inputs import script_parser
from tilth.evaluate.sts_sets import read_sets
from tilth.metrics.significance import mean_interval
from tilth.models.lm import LM

LABELS = (1.0, 0.5, 0.0)


def in_order(lm: LM, inputs: list[str], **settings: float) -> NDArray[np.float64]:
    """Return the share of pairs in the right order, (inputs, adjacent labels); NaN without any."""
    start = time.perf_counter()
    rows = tilth.generate("sts-x2", lm, inputs, **settings)  # type: ignore[arg-type]
    cosines: dict[tuple[str, float], list[float]] = defaultdict(list)
    for row in rows:
        cosines[row["text_a"], row["label"]].append(row["similarity"])
    means = [
        np.mean([c for (_, label), each in cosines.items() if label == one for c in each])
        for one in LABELS
    ]
    said = " / ".join(f"{mean:.3f}" for mean in means)
    print(
        f"{settings}: {len(rows)} rows, mean cosine at 1 / 0.5 / 0: {said}, "
        f"{len(set(rows['text_b'])) / len(rows):.1%} distinct, {time.perf_counter() - start:.0f} s"
    )
    return np.array(
        [
            [
                np.mean([(one > two) + (one == two) / 2 for one, two in
                         product(cosines[text, high], cosines[text, low])] or [np.nan])
                for high, low in pairwise(LABELS)
            ]
            for text in inputs
        ]
    )  # fmt: skip


def main() -> None:
    """Compare every number of candidates with one."""
    parser = script_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="starter")
    parser.add_argument("--inputs", type=int, default=300)
    parser.add_argument("--candidates", type=int, nargs="*", default=[4, 8])
    parser.add_argument("--decay", type=float, nargs="+", default=[0.0, 100.0])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    (sts,) = read_sets(args.data, ["stsb-dev"])
    texts = sorted({*sts.texts_a, *sts.texts_b})
    drawn = np.random.default_rng(0).permutation(len(texts))[: args.inputs]
    inputs = [texts[place] for place in drawn]
    lm = tilth.load_lm(args.model, precision="float32")
    assert isinstance(lm, LM)
    for decay in args.decay:
        base = None
        for candidates in (1, *args.candidates):
            found = in_order(lm, inputs, decay=decay, candidates=candidates, seed=args.seed)
            names = [f"{high:g} above {low:g}" for high, low in pairwise(LABELS)]
            for name, scores in [("all", found.mean(1)), *zip(names, found.T, strict=True)]:
                line = f"  {name}: {np.nanmean(scores):.3f}"
                if base is not None:
                    gains = scores - (base.mean(1) if name == "all" else base.T[names.index(name)])
                    gain = mean_interval([100 * one for one in gains[~np.isnan(gains)]])
                    line += f", gain {words(gain, '+')} points"
                print(line, flush=True)
            base = found if base is None else base


if __name__ == "__main__":
    main()
