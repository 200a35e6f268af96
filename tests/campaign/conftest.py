"""The world of a campaign, made once per process; its counts stand at the end of the output."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.campaign.inputs import make_files
from tests.campaign.judge import MARK, Campaign
from tests.campaign.world import make_sets, make_world

COUNTS = ("cases", "refused", "worked", "traceback", "hang", "wrongly accepted", "data lost",
          "code run", "written outside --out")  # fmt: skip


@pytest.fixture(scope="session")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    folder = tmp_path_factory.mktemp("campaign")
    world = make_world(folder / "world")
    make_files(world / "bad", folder / MARK)
    campaign = Campaign(world, folder / "cases")
    yield campaign
    campaign.stacks.close()


@pytest.fixture(scope="session")
def _small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    folder = tmp_path_factory.mktemp("campaign")
    make_sets(folder / "world")
    make_files(folder / "world" / "bad", folder / MARK)
    campaign = Campaign(folder / "world", folder / "cases")
    yield campaign
    campaign.stacks.close()


@pytest.fixture
def campaign(_whole: Campaign, request: pytest.FixtureRequest) -> Iterator[Campaign]:
    """Return the campaign on all that commands read; a test fails with what went wrong in it."""
    yield from _judged(_whole, request.node)


@pytest.fixture
def small_campaign(_small: Campaign, request: pytest.FixtureRequest) -> Iterator[Campaign]:
    """Return a campaign on sets alone, without models, banks and runs."""
    yield from _judged(_small, request.node)


def _judged(campaign: Campaign, node: Any) -> Iterator[Campaign]:
    campaign.failures, campaign.counts = [], Counter()
    yield campaign
    node.user_properties.append(("campaign", dict(campaign.counts)))
    if campaign.failures:
        pytest.fail("\n".join(campaign.failures), pytrace=False)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "teardown":
                for name, found in report.user_properties:
                    counts.update(found if name == "campaign" else {})
    if counts:
        shown = [*COUNTS, *sorted(set(counts) - set(COUNTS))]
        said = ", ".join(f"{counts[name]} {name}" for name in shown)
        terminalreporter.write_line(f"bad input: {said}")
