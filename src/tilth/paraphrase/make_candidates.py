"""The run that makes candidates: sentences to round trips with their meaning and wording."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data import Card, DatasetWriter, fingerprint, load_folder, read_texts, text_id
from tilth.errors import InputError, TilthError
from tilth.limits import PARTS, SEED
from tilth.models import load_scorer
from tilth.models.names import describe_scorer
from tilth.paraphrase.round_trip import SETTINGS, Candidate, load_translators, round_trip
from tilth.paraphrase.search import Search, is_too_long
from tilth.paraphrase.similarity import meaning, wording
from tilth.paraphrase.tags import cells_of
from tilth.runs import Progress, Run, complete, refuse_inside

if TYPE_CHECKING:
    from datasets import Dataset

    from tilth.models import Seq2Seq
    from tilth.models.scorer import Scorer

COMMAND = "paraphrase candidates"
TOO_LONG, NOTHING, DUPLICATE = "too long", "nothing came out", "duplicate"
_SCHEMA = pa.schema(
    [
        ("text_a", pa.string()), ("text_b", pa.string()), ("meaning", pa.float32()),
        ("wording", pa.float32()), ("pivot", pa.string()), ("setting", pa.string()),
        ("source_id", pa.string()), ("origin", pa.string()), ("forward", pa.string()),
        ("backward", pa.string()), ("seed", pa.int64()), ("drop_reason", pa.string()),
    ]
)  # fmt: skip
TEXTS, SCORES = ("text_a", "text_b"), ("meaning", "wording")
_TEXTS_AT_ONCE = 10_000


def make_candidates(
    source: str | Path | Dataset,
    out: str | Path,
    *,
    forward: str = "starter",
    backward: str = "starter",
    forward_prefix: str | None = None,
    backward_prefix: str | None = None,
    scorer: str = "starter",
    greedy: bool = False,
    beams: int = 5,
    column: str | None = None,
    split: str = "train",
    seed: int = 0,
    device: str = "auto",
    precision: str = "auto",
    part_size: int = 256,
    overwrite: bool = False,
    quiet: bool = True,
) -> Dataset:
    """Make candidates for rewrites from raw sentences, by round trips, with measured similarities.

    Texts should be single sentences, which is what translators are trained on; longer ones lose
    their ends, and those longer than the model reads are dropped. Equal texts count once. A
    candidate equal to its source is kept, the second of two equal ones is dropped.

    Args:
        source: as in `read_texts`, or a data set with a column `text`.
        out: the run folder, where the work can go on after an interruption.
        forward: translator into another language: `starter` (English to German), a folder, a hub
            id.
        backward: translator back.
        forward_prefix: written before every text there, for models of several languages.
        backward_prefix: likewise, on the way back.
        scorer: what measures meaning, as in `load_scorer`.
        greedy: one candidate, the likeliest word at every step; else four by sampling.
        beams: of the searches, unless greedy.
        column: of the source, with the texts.
        split: of a source that has several.
        seed: same texts, settings and seed, same rows.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: of translators and scorer.
        part_size: sentences translated and written as one closed unit.
        overwrite: start the run folder anew.
        quiet: no progress bar.

    Returns:
        The kept rows: text_a, text_b (the candidate), meaning, wording, and their origin.

    Raises:
        InputError: a setting, a model or the source is wrong.
        TilthError: no candidate was kept; the reasons are counted.

    Reference:
        Ogasa, Kajiwara and Arase, sections 3.1, 3.2 and 4.1.
    """
    out = Path(out)
    PARTS.check("part_size", part_size)
    SEED.check("seed", seed)
    Search(beams)
    if isinstance(source, (str, Path)):
        refuse_inside(out, str(source))
        source = read_texts(source, column=column, split=split)
    rows = first_rows(source)
    there, back = load_translators(
        forward, backward, forward_prefix=forward_prefix, backward_prefix=backward_prefix,
        device=device, precision=precision,
    )  # fmt: skip
    rater = load_scorer(scorer, device=device, precision=precision)
    run = Run.open(
        out,
        command=COMMAND,
        settings={
            "forward": forward, "backward": backward, "forward_prefix": there.prefix,
            "backward_prefix": back.prefix, "scorer": scorer, "greedy": greedy, "beams": beams,
            "settings": [] if greedy else [list(setting) for setting in SETTINGS],
            "precision": there.precision, "seed": seed, "part_size": part_size,
        },
        fingerprints={
            "inputs": fingerprint(source, ["text"]), "forward": there.fingerprint,
            "backward": back.fingerprint, "scorer": rater.fingerprint,
        },
        parts=-(-len(rows) // part_size),
        outputs=("dataset", "results.json"),
        overwrite=overwrite,
    )  # fmt: skip
    with run, Progress(len(rows), quiet=quiet, what="sentences") as progress:
        maker = _Maker(source, rows, there, back, rater, run.settings)
        progress.skip(sum(min(part_size, len(rows) - part * part_size) for part in run.done()))
        complete(run, maker.part, progress=progress)
        counts = _write(run)
    if not counts.rows:
        reasons = ", ".join(f"{count} {reason}" for reason, count in counts.drops.items())
        raise TilthError(
            f"{out}: 0 candidates kept ({reasons}): they stand in its parts; give single sentences "
            "in the translator's language"
        )
    return load_folder(out / "dataset")


def first_rows(texts: Dataset) -> NDArray[np.int64]:
    """Return the rows of a data set whose text stands in no row before."""
    if "text" not in texts.column_names:
        raise InputError(f"the sentences have no column 'text': {', '.join(texts.column_names)}")
    ids = [
        int(text_id(text), 16)
        for batch in texts.select_columns(["text"]).iter(batch_size=_TEXTS_AT_ONCE)
        for text in batch["text"]
    ]
    if not ids:
        raise InputError("the source holds no sentences: give at least one")
    first: NDArray[np.int64] = np.unique(np.array(ids, np.uint64), return_index=True)[1]
    return np.sort(first)


class _Maker:
    """Makes parts: round trips of some sentences, measured."""

    def __init__(
        self, texts: Dataset, rows: NDArray[np.int64], forward: Seq2Seq, backward: Seq2Seq,
        scorer: Scorer, settings: dict[str, Any],
    ) -> None:  # fmt: skip
        self.texts, self.rows = texts, rows
        self.forward, self.backward, self.scorer = forward, backward, scorer
        self.settings = settings

    def part(self, index: int, progress: Progress) -> pa.Table:
        """Return a row for each candidate, kept or not, and for each sentence without any."""
        size, seed = self.settings["part_size"], self.settings["seed"]
        batch = self.texts[self.rows[index * size : (index + 1) * size]]
        texts: list[str] = batch["text"]
        found = round_trip(
            texts, self.forward, self.backward, greedy=self.settings["greedy"],
            beams=self.settings["beams"], seed=seed * 1_000_003 + index,
        )  # fmt: skip
        origins = batch.get("origin") or [None] * len(texts)
        origin = {"forward": self.forward.name, "backward": self.backward.name, "seed": seed}
        rows = [
            {"text_a": text, "source_id": text_id(text), "origin": where, **origin, **made}
            for text, where, candidates in zip(texts, origins, found, strict=True)
            for made in self._rows(text, candidates)
        ]
        self._measure(rows)
        dropped = sum(row["drop_reason"] is not None for row in rows)
        progress.advance(done=len(texts), kept=len(rows) - dropped, dropped=dropped)
        return pa.Table.from_pylist(rows, schema=_SCHEMA)

    def _rows(self, text: str, candidates: list[Candidate]) -> Iterator[dict[str, Any]]:
        if not candidates:
            reason = TOO_LONG if is_too_long(self.forward, text) else NOTHING
            yield {"text_b": None, "drop_reason": reason}
        known: set[str] = set()
        for one in candidates:
            repeated = DUPLICATE if one.text in known else None
            known.add(one.text)
            yield {
                "text_b": one.text, "pivot": one.pivot, "setting": one.setting,
                "drop_reason": repeated,
            }  # fmt: skip

    def _measure(self, rows: list[dict[str, Any]]) -> None:
        kept = [row for row in rows if row["drop_reason"] is None]
        first, second = [row["text_a"] for row in kept], [row["text_b"] for row in kept]
        measured = (meaning(first, second, self.scorer), wording(first, second))
        for row, near, alike in zip(kept, *measured, strict=True):
            row["meaning"], row["wording"] = float(near), float(alike)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run of candidates gave.

    Attributes:
        rows: candidates kept.
        good: of them, those a rewriter can learn from: meaning above 70, wording at most 45.
        same: of them, those equal to their source.
        meaning: mean, 0 to 100; None without rows.
        wording: mean, 0 to 100; None without rows.
        drops: reason -> rows.
    """

    rows: int
    good: int
    same: int
    meaning: float | None
    wording: float | None
    drops: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """Return the counts as lines to print."""
        share = 100 / max(self.rows, 1)
        return [
            ("candidates", f"{self.rows:,}"),
            ("meaning above 70 and wording at most 45", f"{self.good * share:.1f}%"),
            ("equal to their source", f"{self.same * share:.1f}%"),
            ("mean meaning", f"{self.meaning or 0:.1f}"),
            ("mean wording", f"{self.wording or 0:.1f}"),
            *((f"dropped: {reason}", f"{count:,}") for reason, count in self.drops.items()),
        ]


def read_counts(out: str | Path) -> Counts:
    """Return what a finished run of candidates gave."""
    return Counts(**json.loads((Path(out) / "results.json").read_text(encoding="utf-8")))


def _write(run: Run) -> Counts:
    """Write the finished set from the parts, its card, and what is counted."""
    rows = good = same = 0
    sums = np.zeros(2)
    drops: Counter[str] = Counter()
    with DatasetWriter(run.path / "dataset") as writer:
        for index in range(run.parts):
            table = run.read_part(index)
            dropped = pc.is_valid(table["drop_reason"])
            kept = table.filter(pc.invert(dropped)).drop_columns(["drop_reason"])
            drops.update(table["drop_reason"].drop_null().to_pylist())
            measured = [kept[name].to_numpy().astype(np.float64) for name in SCORES]
            rows += len(kept)
            good += int((cells_of(*measured) >= 0).sum())
            same += sum(a == b for a, b in zip(*(kept[n].to_pylist() for n in TEXTS), strict=True))
            sums += [values.sum() for values in measured]
            writer.write(kept)
            writer.write(table.filter(dropped), config="dropped")
        means = [float(value) / rows if rows else None for value in sums]
        counts = Counts(rows, good, same, means[0], means[1], dict(drops))
        writer.write_card(_card(run, counts))
    run.write_file("results.json", json.dumps(counts.to_dict(), indent=2) + "\n")
    return counts


def _card(run: Run, counts: Counts) -> Card:
    settings = run.settings
    way = "by the likeliest word at every step"
    if not settings["greedy"]:
        pairs = ", ".join(f"({top_k}, {heat})" for top_k, heat in settings["settings"])
        way = f"by beam search with sampling at (k, T) = {pairs}, each there and each back"
    models = " and back with ".join(f"`{settings[name]}`" for name in ("forward", "backward"))
    return Card(
        title="Round trips",
        summary=(
            f"Sentences (text_a) and what came back from another language (text_b): {counts.rows} "
            f"pairs, translated with {models}, {way} (controlled paraphrase, Ogasa, Kajiwara and "
            "Arase), made with tilth. Meaning is measured by "
            f"{describe_scorer(settings['scorer'])}; wording by sentence BLEU, 0 to 100; "
            f"{counts.good} pairs have a meaning above 70 and a wording of at most 45, "
            f"{counts.same} came back as they were. Nobody has checked them."
        ),
        command=run.command,
        settings=settings,
        counts={"train": {"": counts.rows}},
        drops=counts.drops,
        model=" and ".join(dict.fromkeys((settings["forward"], settings["backward"]))),
        seed=int(settings["seed"]),
    )
