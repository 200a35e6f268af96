"""The pages to read runs: the list, the rows of one with filters, a row with its origin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from tilth.errors import InputError, TilthError
from tilth.report.charts import bar
from tilth.report.generation import DROP_REASONS
from tilth.report.html import count_of
from tilth.report.paraphrase import DROP_REASONS as PARAPHRASE_REASONS
from tilth.view.rows import GROUPS, WHOLE, detail_of, label_names
from tilth.view.runs import RUNNING, RunEntry, instructions_of
from tilth.view.site import Asked, HttpReply, NotFoundError, Site, url
from tilth.view.store import DROPPED, KEPT, RowFilter, RowStore

PAGE_ROWS = 50
_MOST_VALUES = 40  # of a list to choose from
_MOST_RELATED, _MOST_SIMILAR = 60, 5
_TITLES = {
    "label": "Label", "kind": "Among the labels", "reason": "Reason of drops", "source": "Source",
    "config": "Part",
}  # fmt: skip
_REASONS = {"paraphrase": PARAPHRASE_REASONS}
_LONGEST_SEARCH = 300  # characters
# The scripts of a report file do not run here: it may have come from elsewhere.
_REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'"


def run_list(site: Site, _: Asked) -> HttpReply:
    """Show all runs below the folder."""
    entries = site.runs.entries()
    return site.page("runs", entries=entries, live=any(one.state == RUNNING for one in entries))


def live_runs(site: Site, _: Asked) -> HttpReply:
    """Return the table of runs alone."""
    return site.page("runs_table", entries=site.runs.entries())


def row_list(site: Site, asked: Asked) -> HttpReply:
    """Show the rows of a run that pass a filter, and their distributions."""
    entry = site.entry(asked)
    if not entry.has_rows:
        raise NotFoundError(entry.no_rows)
    store = site.store(entry)
    is_waiting = store.is_waiting
    chosen = filter_of(asked.query, store)
    page = store.page(
        chosen, size=PAGE_ROWS, after=asked.number("after"), before=asked.number("before")
    )
    numbers = [name for name in store.numbers if store.histogram(name, RowFilter()) is not None]
    fields = fields_of(chosen)
    first = numbers[:3]
    if chosen.sort and chosen.sort not in first:
        first = [chosen.sort, *numbers[:2]]

    def distributions() -> Markup:
        drawn = [_histogram(entry, store, chosen, name) for name in numbers]
        facets = _facets(entry, store, chosen)
        return site.part("rows_distributions", facets=facets, histograms=drawn)

    return site.page(
        "rows",
        entry=entry,
        store=store,
        chosen=chosen,
        fields=fields,
        page=page,
        total=store.count(chosen),
        distributions=store.remembered(tuple(fields.items()), distributions),
        numbers=numbers,
        shown_numbers=[(name, name.replace("_", " "), 0 if name in WHOLE else 2) for name in first],
        has_labels=bool(store.values_of("label")),
        live=entry.state == RUNNING or store.is_loading or is_waiting,
        is_waiting=is_waiting,
        link=lambda **changes: url("/rows", run=entry.name, **{**fields, **changes}),
    )


def live_rows(site: Site, asked: Asked) -> HttpReply:
    """Return how far the run and the reading of its rows are."""
    entry = site.entry(asked)
    return site.page("rows_state", entry=entry, store=site.store(entry))


def one_row(site: Site, asked: Asked) -> HttpReply:
    """Show all that is known of one row, and the other rows of its input."""
    entry, row = site.entry(asked), asked.number("row")
    store = site.store(entry)
    found = store.file_of(row) if row is not None else None
    if row is None or found is None:
        raise NotFoundError(f"{entry.title}: there is no row {row} (yet)")
    (shown,) = store.fetch([row])
    try:
        detail = detail_of(*found, (shown["first"], shown["text"]))
    except (OSError, LookupError) as error:
        raise TilthError(f"{found[0].name}: cannot be read: {error}") from error
    group, related_by = _group_of(detail)
    related = RowFilter(group=group)
    rows = store.select(related)[:_MOST_RELATED].tolist() if group is not None else []
    shares = dict(store.similar(row, _MOST_SIMILAR, group))
    near = [one for one in range(row - 2, row + 3) if 0 <= one < store.rows and one != row]
    return site.page(
        "row",
        entry=entry,
        row=shown,
        detail=_described(detail, label_names(found[0])),
        file=entry.name if entry.copy else found[0].relative_to(entry.folder),
        instruction=instructions_of(entry).get(str(shown["label"])),
        why=_REASONS.get(entry.command, DROP_REASONS).get(str(shown["reason"]), ""),
        related=store.fetch([one for one in rows if one != row]),
        group=group,
        related_by=related_by,
        neighbours=store.fetch(near),
        similar=[one | {"shared": shares[one["row"]]} for one in store.fetch(list(shares))],
        last=store.rows - 1,
    )


def report(site: Site, asked: Asked) -> HttpReply:
    """Return the report of a run."""
    entry = site.entry(asked)
    if not entry.has_report:
        raise NotFoundError(f"{entry.title}: the run has no report: tilth report writes it")
    file = (entry.folder / "report.html").resolve()
    if entry.folder.resolve() not in file.parents:
        raise NotFoundError(f"{entry.title}: report.html is a link out of the run: tilth report "
                            "writes it anew")  # fmt: skip
    return HttpReply(file.read_bytes(), policy=_REPORT_POLICY)


def static_file(path: str) -> Callable[[Site, Asked], HttpReply]:
    """Return the page of a style sheet, a script or an icon."""

    def page(site: Site, asked: Asked) -> HttpReply:
        content, kind = site.files[path]
        return HttpReply(content, kind, is_fixed=bool(asked.query.get("v")))

    return page


def filter_of(query: Mapping[str, str], store: RowStore) -> RowFilter:
    """Return the filter of an address.

    Raises:
        InputError: a number is none, or a name is unknown.
    """
    ranges = {}
    for name in store.numbers:
        low, high = (_float(query, f"{name}-{end}") for end in ("min", "max"))
        if low is not None or high is not None:
            ranges[name] = low, high
    state, sort = query.get("state", ""), query.get("sort", "")
    if state not in ("", KEPT, DROPPED):
        raise InputError(f"state is {state[:40]!r}: use {KEPT} or {DROPPED}")
    if sort and sort not in store.numbers:
        raise InputError(f"sort is {sort[:40]!r}: the rows have {', '.join(store.numbers)}")
    words = query.get("q", "")
    if len(words) > _LONGEST_SEARCH:
        raise InputError(f"the search has {len(words):,} characters: give {_LONGEST_SEARCH}")
    return RowFilter(
        words=words,
        state=state,
        **{name: query.get(name) or None for name in (*_TITLES, "group")},
        ranges=ranges,
        sort=sort,
        descending=query.get("order") == "down",
    )


def fields_of(chosen: RowFilter) -> dict[str, str]:
    """Return the fields of the address of a filter."""
    found = {"q": chosen.words, "state": chosen.state, "sort": chosen.sort}
    found |= {name: getattr(chosen, name) or "" for name in (*_TITLES, "group")}
    for name, ends in chosen.ranges.items():
        for end, value in zip(("min", "max"), ends, strict=True):
            found[f"{name}-{end}"] = "" if value is None else _written(value)
    found["order"] = "down" if chosen.descending else ""
    return {name: value for name, value in found.items() if value}


def _written(value: float) -> str:
    """Return a number in the fewest digits that no other of its precision has."""
    return str(np.float32(value)).removesuffix(".0")


def _float(query: Mapping[str, str], name: str) -> float | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{name} is {text[:40]!r}: give a number")
    return value


def _facets(entry: RunEntry, store: RowStore, chosen: RowFilter) -> list[dict[str, Any]]:
    """Return the values to choose from of each column, with counts and addresses."""
    found = []
    states = {name: n for name, n in store.states(chosen).items() if n}
    columns = {"state": ("Kept or dropped", states)} if store.values_of("reason") else {}
    for name, title in _TITLES.items():
        if any(store.values_of(name)) and not (name == "label" and store.values_of("kind")):
            columns[name] = title, store.counts(name, chosen)
    for name, (title, counts) in columns.items():
        held = getattr(chosen, name) or None
        values = list(counts.items())[:_MOST_VALUES]
        if held is not None and held not in dict(values):
            values.append((held, counts.get(held, 0)))
        most = max(counts.values(), default=0)
        lines = []
        for value, count in values:
            fields = {**fields_of(chosen), name: "" if value == held else value}
            lines.append((value, count, bar(count, most, "bar drop" if _is_drop(name, value)
                                            else "bar"),
                          value == held, url("/rows", run=entry.name, **fields)))  # fmt: skip
        found.append({"title": title, "name": name, "lines": lines,
                      "hidden": max(len(counts) - len(values), 0)})  # fmt: skip
    return found


def _is_drop(name: str, value: str) -> bool:
    return name == "reason" or (name == "state" and value == DROPPED)


def _histogram(entry: RunEntry, store: RowStore, chosen: RowFilter, name: str) -> dict[str, Any]:
    """Return the bars of a number, which are links, and its ends."""
    found = store.histogram(name, chosen)
    assert found is not None
    most = max(found.counts) or 1
    low, high = chosen.ranges.get(name, (None, None))
    rest = {key: value for key, value in chosen.ranges.items() if key != name}
    fields = fields_of(replace(chosen, ranges=rest))
    width = 100 / len(found.counts)
    bins = []
    for place, count in enumerate(found.counts):
        if not count:
            continue
        start, stop = found.edges(place)
        is_chosen = (low is None or stop > low) and (high is None or start <= high)
        own: dict[str, str] = {f"{name}-min": _written(start)}
        if place < len(found.counts) - 1:  # the last bin holds its most value, too
            own[f"{name}-max"] = _written(np.nextafter(np.float32(stop), np.float32(-np.inf)))
        text = escape(f"{name} {start:.3g} to {stop:.3g}: {count_of(count, 'row')}")
        x, height = place * width, max(60 * count / most, 1.5)
        off = " off" if name in chosen.ranges and not is_chosen else ""
        bins.append(
            f'<a href="{escape(url("/rows", run=entry.name, **fields, **own))}" '
            f'aria-label="{text}"><title>{text}</title>'
            f'<rect class="hit" x="{x:.2f}%" y="0" width="{width:.2f}%" height="62"/>'
            f'<rect class="bar{off}" x="{x + 0.06 * width:.2f}%" y="{62 - height:.1f}" '
            f'width="{0.88 * width:.2f}%" height="{height:.1f}"/></a>'
        )
    return {
        "name": name, "bins": Markup("".join(bins)),
        "ends": (f"{found.low:.3g}", f"{found.high:.3g}"),
        "is_ranged": name in chosen.ranges, "all": url("/rows", run=entry.name, **fields),
    }  # fmt: skip


def _group_of(detail: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the value that a row shares with others, if any, and the name of its column."""
    name = next((name for name in GROUPS if name in detail), "")
    value = detail.get(name)
    return None if value is None else str(value), name


def _described(detail: Mapping[str, Any], names: list[str]) -> list[tuple[str, str]]:
    """Return the columns of a row as texts; class numbers with their names."""
    found = []
    for name, value in detail.items():
        text = "" if value is None else str(value)
        if isinstance(value, float):
            text = f"{value:.6g}"
        if isinstance(value, list) and value and isinstance(value[0], float):
            text = ", ".join(f"{one:.3g}" for one in value)
            if len(value) == len(names):
                pairs = sorted(zip(names, value, strict=True), key=lambda pair: -pair[1])
                text = ", ".join(f"{one}: {share:.3g}" for one, share in pairs)
        if isinstance(value, int) and name == "label" and 0 <= value < len(names):
            text = f"{names[value]} ({value})"
        found.append((name, text))
    return found
