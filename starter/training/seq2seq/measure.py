"""The figures on the card of the starter translator and rewriter.

    python -m starter.training.seq2seq.measure translate --data ../shared/data
    python -m starter.training.seq2seq.measure rewrite   --data ../shared/data

The first prints BLEU on Tatoeba's test pairs, the second what rewrites of sentences come out that
no training used: of sts12, of sts14, of reviews and of the bank's held-out tenth; by the tags alone
and steered.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sacrebleu
from starter.training.lm.sentences import DEFAULT_DATA, read_lines, read_rows, segment
from starter.training.seq2seq.data import held_out
from starter.training.static.data import is_text

from tilth.models import load_seq2seq
from tilth.paraphrase.rewriter import Rewrite, Rewriter, load_paraphraser
from tilth.paraphrase.round_trip import round_trip
from tilth.paraphrase.search import BeamSearch, decode
from tilth.paraphrase.similarity import long_enough, meaning, without_symbols, wording
from tilth.paraphrase.tags import asked_cell


def translate(arguments: argparse.Namespace) -> None:
    """Print BLEU of both directions."""
    rows = list(read_rows(arguments.data / "parallel/tatoeba/test.jsonl.gz"))[: arguments.count]
    for source, target in (("en", "de"), ("de", "en")):
        model = load_seq2seq(arguments.model, prefix=f">>{target}<< ")
        for beams in (1, 5):
            began = time.perf_counter()
            found = decode(model, [row[source] for row in rows], BeamSearch(beams=beams))
            speed = len(rows) / (time.perf_counter() - began)
            score = sacrebleu.corpus_bleu(
                [texts[0] for texts in found], [[row[target] for row in rows]]
            )
            print(f"{source}-{target} beam {beams}: BLEU {score.score:.1f}, {speed:.0f} a second")


def unseen(data: Path, count: int) -> dict[str, list[str]]:
    """Return sentences of each kind that no training used."""
    found: dict[str, list[str]] = {}
    for name in ("sts12", "sts14"):
        rows = read_rows(data / f"sts/{name}.jsonl.gz")
        found[name] = [row["text_a"] for row in rows]
    for name in ("wikipedia", "wikinews", "novels", "dialogue-turns"):
        found[name] = [
            sentence
            for line in list(read_lines(data / f"bank/{name}.txt.gz"))[::7]
            for sentence in segment(line)
            if held_out(sentence)
        ]
    for name in ("imdb-unlabelled", "amazon-reviews"):  # these serve no training at all
        lines = list(read_lines(data / f"bank/{name}.txt.gz"))[::7]
        found[name] = [sentence for line in lines for sentence in segment(line)]
    for name, texts in found.items():
        unique = sorted({t for t in texts if is_text(t) and 3 < t.count(" ") < 30})
        found[name] = random.Random(name).sample(unique, min(count, len(unique)))
    return found


def line(name: str, rewrites: Sequence[Rewrite]) -> str:
    """Return the figures of some rewrites."""
    made = [one for one in rewrites if one.problem is None]
    use = long_enough([one.source for one in made], [one.text for one in made])
    rows = [one for one, used in zip(made, use, strict=True) if used]
    cell = asked_cell(rows[0].asked_meaning, rows[0].asked_wording)
    same = sum(
        without_symbols(one.source).lower() == without_symbols(one.text).lower() for one in made
    )
    return (
        f"{name:<28} meaning {np.mean([one.meaning for one in rows]):5.1f}  wording "
        f"{np.mean([one.wording for one in rows]):5.1f}  near "
        f"{100 * np.mean([cell.is_near(one.wording) for one in rows]):5.1f}%  inside "
        f"{100 * np.mean([one.inside for one in rows]):5.1f}%  same {100 * same / len(made):.1f}%  "
        f"of {len(rows)}, none {len(rewrites) - len(made)}, "
        f"flips {sum(one.flips for one in rewrites)}"
    )


def rewrite(arguments: argparse.Namespace) -> None:
    """Print what comes out for each asked pair, and the greedy round trip beside it."""
    kinds = unseen(arguments.data, arguments.count)
    texts = [text for found in kinds.values() for text in found]
    steered = load_paraphraser(arguments.model, precision=arguments.precision)
    scorer = steered.scorer
    by_tags = Rewriter(steered.seq2seq, scorer)
    for asked_wording in (5, 20, 40):
        for asked_meaning in (95, 70):
            for tries in (0, *arguments.tries):
                began = time.perf_counter()
                if tries:
                    found = steered.rewrite(
                        texts, meaning=asked_meaning, wording=asked_wording, tries=tries
                    )
                else:  # the paper's decoding: the best output, whatever it is
                    found = by_tags.rewrite(
                        texts, meaning=asked_meaning, wording=asked_wording, min_meaning=0,
                        steer=False,
                    )  # fmt: skip
                name = f"{asked_meaning}/{asked_wording}, "
                name += f"steered, tries {tries}" if tries else "tags alone"
                speed = len(texts) / (time.perf_counter() - began)
                print(f"{line(name, found)} {speed:.1f}/s", flush=True)
                if arguments.kinds:
                    places = iter(found)
                    for kind, some in kinds.items():
                        print(line(f"    {kind}", [next(places) for _ in some]))
                for one in found[:: max(1, len(found) // max(1, arguments.show))][: arguments.show]:
                    print(f"      {one.meaning:3.0f} {one.wording:3.0f} {one.source} => {one.text}")
    there, back = (load_seq2seq(arguments.model, prefix=f">>{side}<< ") for side in ("de", "en"))
    trips = round_trip(texts, there, back, greedy=True)
    pairs = [(text, found[0].text) for text, found in zip(texts, trips, strict=True) if found]
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    use = long_enough(first, second)
    print(
        f"greedy round trip: meaning {meaning(first, second, scorer)[use].mean():.1f} wording "
        f"{wording(first, second)[use].mean():.1f} of {use.sum()}"
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("translate", "rewrite"))
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--model", default="starter")
    parser.add_argument("--count", type=int, default=None, help="pairs, or sentences of each kind")
    parser.add_argument("--tries", type=int, nargs="+", default=[1], help="of the steered search")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--kinds", action="store_true", help="figures of each kind of text too")
    parser.add_argument("--show", type=int, default=4, help="examples of each asked pair")
    arguments = parser.parse_args()
    if arguments.what == "translate":
        translate(arguments)
    else:
        arguments.count = arguments.count or 100
        rewrite(arguments)


if __name__ == "__main__":
    main()
