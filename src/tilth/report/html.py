"""The report as one HTML file: no network, no scripts but a filter, every text escaped."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from tilth.errors import TilthError
from tilth.report.charts import (
    balance_rows,
    count_of,
    drop_rows,
    length_rows,
    likeness_axis,
    likeness_rows,
)
from tilth.report.figures import number, percent
from tilth.report.generation import Report, gather
from tilth.report.run_reader import command_of
from tilth.report.text_similarity import Encoder, Similarity

LONGEST_TEXT = 600  # characters of a text to read; the rest is counted
SHOWN_LABELS = 12  # of a chart or table; the rest unfolds

# The filter above the examples. Without it the tables are simply complete.
SCRIPT = """
const form = document.getElementById("filter");
if (form) {
  const rows = [...document.querySelectorAll("tr[data-label]")];
  const given = [...document.querySelectorAll("tr.given")];
  const said = document.getElementById("found");
  const apply = () => {
    const label = form.elements.label.value;
    const words = form.elements.words.value.toLowerCase();
    let found = 0;
    for (const row of rows) {
      const head = row.parentElement.querySelector("tr.given");
      const text = (head ? head.textContent : "") + " " + row.textContent;
      const fits = (!label || row.dataset.label === label) && text.toLowerCase().includes(words);
      row.hidden = !fits;
      found += fits;
    }
    for (const head of given) {
      head.hidden = !head.parentElement.querySelector("tr[data-label]:not([hidden])");
    }
    said.textContent = found + " of " + rows.length + " texts shown";
  };
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}
"""


def write_report(
    run_folder: str | Path,
    *,
    out: str | Path | None = None,
    curated: str | Path | None = None,
    encoder: str | Encoder | None = None,
    similarity: Similarity | None = None,
    method: str = "",
    seed: int = 0,
    seconds: float | None = None,
    command: str | None = None,
    next_steps: Sequence[tuple[str, str]] | None = None,
) -> Path:
    """Write the report of a run and return where it lies.

    Args:
        run_folder: a folder of `tilth generate`, finished or not; or of `tilth paraphrase`,
            `augment`, `train classifier` or `train tagger`, whose pages take `out` alone of what
            follows.
        out: the file to write; RUN/report.html when None.
        curated: a folder that `tilth curate` made of the run; RUN/curated, if there, when None.
        encoder: measures similarity by its cosine: a sentence-transformers model, or its name.
        similarity: any other measure, one figure per pair; word overlap when both are None.
        method: what the page says the measure is.
        seed: of the draw of examples and of the rows that similarity is computed on.
        seconds: time the run took; read from the files' dates when None.
        command: the command line; taken from run.json when None.
        next_steps: what to do next, and the command for it; usual ones when None.

    Raises:
        InputError: the folder holds no run, or no tries; the encoder cannot be loaded.
        TilthError: the file cannot be written.

    Example:
        >>> write_report("runs/sts", curated="runs/sts-curated")  # doctest: +SKIP
        PosixPath('runs/sts/report.html')
    """
    other = _other_page(command_of(Path(run_folder)))
    if other is not None:
        return other(run_folder, out=out)
    report = gather(
        run_folder,
        curated=curated,
        encoder=encoder,
        similarity=similarity,
        method=method,
        seed=seed,
        seconds=seconds,
        command=command,
        next_steps=next_steps,
    )
    target = Path(out) if out is not None else Path(run_folder) / "report.html"
    _write(target, render(report))
    return target


def _other_page(command: str) -> Callable[..., Path] | None:
    """Return what writes the page of another command's run."""
    # These are made with this page's parts.
    from tilth.report.augment import write_augment_report
    from tilth.report.classifier import write_classifier_report
    from tilth.report.paraphrase import write_rewrite_report

    return {
        "paraphrase": write_rewrite_report,
        "augment": write_augment_report,
        "train classifier": write_classifier_report,
        "train tagger": write_classifier_report,
    }.get(command)


def render(report: Report) -> str:
    """Return the page of a report."""
    health = report.health
    script_hash = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    labels = [label.label for label in health.labels] or [""]
    page = template("page.html.jinja").render(
        report=report,
        claim=_claim(report),
        figures=_figures(report),
        labels=labels,
        label_width=f"{min(max(0.55 * max(map(len, labels)) + 1.8, 4.4), 13.0):.1f}rem",
        sick={warning.label for warning in health.warnings},
        shown=SHOWN_LABELS,
        drops=drop_rows(health.dropped, health.tries),
        curated_drops=drop_rows(report.curated.dropped, health.kept) if report.curated else [],
        balance=balance_rows({label.label: label.kept for label in health.labels}),
        curated_balance=balance_rows(report.curated.labels) if report.curated else [],
        lengths=length_rows(report),
        likeness=likeness_rows(report.likeness),
        likeness_axis=likeness_axis(report.likeness),
        paired=report.inputs is not None,
        fits=any(label.fit_share is not None for label in health.labels),
        alike=any(label.similarity is not None for label in health.labels),
        script=Markup(SCRIPT),
        script_hash=script_hash,
    )
    return page.lstrip()


@cache
def template(name: str) -> Template:
    """Return a template of this folder, which escapes whatever it is given."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    environment.filters["places"] = number
    environment.filters["shown_text"] = shown_text
    environment.filters["options"] = _options
    return environment.get_template(name)


def shown_text(text: str) -> str:
    """Return a text fit to be shown: control characters made visible, its length bounded."""
    cut = text[:LONGEST_TEXT]
    seen = "".join(_visible(character) for character in cut)
    return seen if len(text) <= LONGEST_TEXT else f"{seen} \u2026 ({len(text):,} characters)"


def _options(text: str) -> Markup:
    """Return escaped text whose command-line options do not break over two lines."""
    return Markup(
        re.sub(r"--[a-z][a-z-]+", r'<code class="option">\g<0></code>', str(escape(text)))
    )


def _visible(character: str) -> str:
    code = ord(character)
    if character == "\n":
        return "\u23ce\n"
    if code < 32:
        return chr(0x2400 + code)
    return "\ufffd" if 127 <= code < 160 or 0xD800 <= code < 0xE000 else character


def _claim(report: Report) -> str:
    pair = "text pairs" if report.inputs is not None else "texts"
    source = f" for {count_of(report.inputs, 'input')}" if report.inputs is not None else ""
    return (
        f"{report.health.kept:,} labelled {pair} that the language model {report.model} wrote"
        f"{source} from instructions alone, without a labelled example."
    )


def _figures(report: Report) -> list[tuple[str, str, str]]:
    """Return name, value and note of the numbers at the top."""
    health = report.health
    rows: list[tuple[str, str, str]] = []
    if report.inputs is not None:
        rows.append(("inputs", f"{report.inputs:,}", ""))
    rows.append(("tries", f"{health.tries:,}", count_of(len(health.labels), "label")))
    share = percent(health.kept / health.tries) if health.tries else ""
    rows.append(("kept", f"{health.kept:,}", f"{share} of the tries" if share else ""))
    if report.curated is not None:
        splits = ", ".join(f"{name} {rows:,}" for name, rows in report.curated.splits.items())
        rows.append(("after curation", f"{report.curated.rows:,}", splits))
    if report.seconds:
        rows.append(("time", duration(report.seconds), report.time_note))
        rate = health.kept / report.seconds
        tokens = sum(label.all_tokens for label in health.labels) / report.seconds
        rows.append(("kept per second", _rate(rate), f"{_rate(tokens)} tokens per second"))
    return rows


def _rate(per_second: float) -> str:
    if per_second >= 100:
        return f"{per_second:,.0f}"
    return f"{per_second:.1f}" if per_second >= 0.1 else f"{per_second:.2g}"


def duration(seconds: float) -> str:
    """Return a time as a person would say it."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


def _write(target: Path, page: str) -> None:
    """Write beside the target and rename, so that a reader never meets half a page."""
    temporary: str | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.parent, prefix=".report-", delete=False
        ) as file:
            temporary = file.name
            file.write(page)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise TilthError(
            f"{target}: the report cannot be written ({error.strerror}); "
            "free the place or choose another file"
        ) from error
