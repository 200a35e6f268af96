from contextlib import ExitStack

import pytest

from tilth.models.truncation import counted_cuts, one_warning_on_cuts, warn_of_cuts


def interrupted_job() -> None:
    with one_warning_on_cuts():
        warn_of_cuts(2, 9, 16, "one")
        warn_of_cuts(3, 9, 16, "one")
        warn_of_cuts(1, 9, 32, "two")
        raise KeyboardInterrupt


def test_a_job_says_once_what_its_parts_cut(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_cuts(0, 9, 16, "one")
    warn_of_cuts(2, 9, 16, "one")
    assert caplog.messages == [
        "2 of 9 texts are longer than the 16 tokens that one reads: they were cut"
    ]
    caplog.clear()
    with pytest.raises(KeyboardInterrupt):
        interrupted_job()
    assert caplog.messages == [
        "texts of more than the 16 tokens that one reads were cut: 5",
        "texts of more than the 32 tokens that two reads were cut: 1",
    ]


def test_jobs_that_end_in_any_order_keep_their_own_counts() -> None:
    with ExitStack() as first, ExitStack() as second:
        one = first.enter_context(counted_cuts())
        two = second.enter_context(counted_cuts())
        first.close()
        warn_of_cuts(2, 9, 16, "one")
    assert (dict(one), dict(two)) == ({}, {(16, "one"): 2})
