from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

from tilth.errors import InputError
from tilth.generation.attempts import (
    Job,
    Outcome,
    items_from_inputs,
    items_from_nothing,
    make_part,
    split_output,
)
from tilth.generation.settings import GenerateSettings
from tilth.generation.task import load_task


@dataclass
class Count:
    done: int = 0
    kept: int = 0
    dropped: int = 0

    def advance(self, done: int = 0, kept: int = 0, dropped: int = 0) -> None:
        self.done += done
        self.kept += kept
        self.dropped += dropped


@dataclass
class Scripted:
    """Fails the tries it is told to; runs jobs in any order."""

    reason: Callable[[Job], str | None]
    backwards: bool = False
    seen: list[Job] = field(default_factory=list)

    def run(self, jobs: Iterable[Job], then: Callable[[Outcome], Job | None]) -> None:
        queue = deque(jobs)
        while queue:
            job = queue.pop() if self.backwards else queue.popleft()
            self.seen.append(job)
            following = then(Outcome(job, f"text {job.attempt}", self.reason(job), 5, 0.0))
            if following:
                queue.append(following)


TEXTS = ["A dog sleeps.", "Rain falls.", "The shop is closed."]


def part(sampler: Scripted, task: str = "sts-x2", **settings: int) -> tuple[list[dict], Count]:
    spec, count = load_task(task), Count()
    items = items_from_inputs(spec, TEXTS, TEXTS)
    if not spec.is_pair:
        items = items_from_nothing(spec, 3, each_label=True)
    table = make_part(spec, "model", GenerateSettings(**settings), items, sampler, count)
    return table.to_pylist(), count


@pytest.mark.parametrize("backwards", [False, True])
def test_attempts_go_on_until_enough_are_kept(backwards: bool) -> None:
    sampler = Scripted(lambda job: "not-closed" if job.attempt in (0, 2) else None, backwards)
    rows, count = part(sampler)
    cells = {(row["text_a"], row["label"]) for row in rows}
    assert len(cells) == 9
    for text, label in cells:
        tries = [row for row in rows if (row["text_a"], row["label"]) == (text, label)]
        assert [row["try"] for row in tries] == [0, 1, 2, 3]
        assert [row["drop_reason"] for row in tries] == ["not-closed", None, "not-closed", None]
    assert (count.done, count.kept, count.dropped) == (3, 18, 18)


def test_attempts_end_at_their_number() -> None:
    rows, count = part(Scripted(lambda job: "newline"), max_tries=3)
    assert len(rows) == 9 * 3
    assert (count.done, count.kept) == (3, 0)


def test_a_prompt_that_is_too_long_is_not_tried_again() -> None:
    rows, _ = part(Scripted(lambda job: "prompt-too-long"))
    assert len(rows) == 9 * 2


def test_rows_are_in_order_and_carry_their_origin() -> None:
    rows, _ = part(Scripted(lambda job: None, backwards=True), seed=7)
    keys = [(row["item"], ["1", "0.5", "0"].index(row["label"]), row["try"]) for row in rows]
    assert keys == sorted(keys)
    assert {(row["task"], row["model"], row["seed"]) for row in rows} == {("sts-x2", "model", 7)}


def test_a_single_text_is_wanted_once_for_each_label_and_number() -> None:
    rows, count = part(Scripted(lambda job: None), task="review-sentiment")
    assert [(row["label"], row["item"]) for row in rows] == [
        (label, n) for n in range(3) for label in ("positive", "negative")
    ]
    assert [row["source_id"] for row in rows] == [
        f"review-sentiment-{n}-{label}" for n in range(3) for label in ("positive", "negative")
    ]
    assert count.kept == 6


def test_without_debiasing_counter_prompts_are_not_run() -> None:
    sampler = Scripted(lambda job: None)
    spec = load_task("sts-x2")
    settings = GenerateSettings(decay=0)
    make_part(spec, "m", settings, items_from_inputs(spec, TEXTS, TEXTS), sampler, Count())
    assert {len(job.prompts) for job in sampler.seen} == {1}


def test_random_numbers_follow_from_seed_text_label_and_attempt_alone() -> None:
    first, second = Scripted(lambda job: None), Scripted(lambda job: None, backwards=True)
    part(first)
    part(second)
    keys = {(job.source_id, job.label, job.attempt): job.key for job in first.seen}
    assert len(set(keys.values())) == len(keys) == 18
    again = {(job.source_id, job.label, job.attempt): job.key for job in second.seen}
    assert keys == again
    other = Scripted(lambda job: None)
    part(other, seed=1)
    assert not {job.key for job in other.seen} & set(keys.values())


def test_equal_inputs_count_once_and_the_first_stays() -> None:
    spec = load_task("sts-x2")
    items = items_from_inputs(spec, ["a", "b", "a", "c", "b"], ["1", "2", "1", "3", "2"])
    assert [(item.number, item.text) for item in items] == [(0, "a"), (1, "b"), (2, "c")]


def test_fewer_tries_than_texts_are_refused() -> None:
    with pytest.raises(InputError, match="max_tries is 1: it cannot be below per_input, 2"):
        GenerateSettings(max_tries=1).check_tries()
    with pytest.raises(InputError, match="max_tries is 5: it cannot be below per_input, 6"):
        GenerateSettings(per_input=6)


@pytest.mark.parametrize(
    ("decoded", "expected"),
    [
        ('A cat." and more', ("A cat.", None)),
        ('A cat.", she said "', ("A cat.", None)),
        ("never closed", ("never closed", "not-closed")),
        ('two\nlines"', ("two\nlines", "newline")),
        ('closed" then\na newline', ("closed", None)),
        ('"', ("", "empty")),
        ('  "', ("  ", "empty")),
        (' kept as it is "', (" kept as it is ", None)),
        ("", ("", "not-closed")),
    ],
)
def test_the_text_ends_at_the_first_quotation_mark(
    decoded: str, expected: tuple[str, str | None]
) -> None:
    assert split_output(decoded) == expected
