"""Every option of every command with every bad value of its kind."""

import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from tests.campaign.bad_models import HARMLESS, MODELS
from tests.campaign.commands import BESIDE, CHANGES_ITS_INPUT, NO_RUN, Command, Option, commands
from tests.campaign.judge import MARK, Campaign

# What a stopped case leaves open is no finding.
pytestmark = pytest.mark.filterwarnings("ignore")

T = TypeVar("T")
NUMBERS = ("-1", "0", "2147483648", "9223372036854775808", "1e308", "nan", "inf", "abc", "")
TEXTS = ("", "nope", " ", "\udcff\udcfe", "a\nerror: b", "\x1b[31mred", "x" * 300, "../..", "a,,b")
# Numbers that are as good as others: the option, and which of the above.
RIGHT_NUMBERS = {
    "--seed": {"0", "2147483648", "9223372036854775808"},
    "--min-similarity": {"-1", "0"},
    "--gpus-per-worker": {"0"},
}
# What another argument's error says that is found before a model is loaded.
EARLIER = {"recipe run": ["empty"]}
# Any text is right for these.
FREE_TEXTS = {"texts", "--forward-prefix", "--backward-prefix", "--split", "--system"}

EACH = [
    pytest.param(command, option, id=f"{command.slug}-{option.name}")
    for command in commands()
    for option in command.options
    if option.kind is not bool
    and option.written != "--out"
    and command.name != "view"  # what it takes it serves until it is interrupted: tests/view
]


def names_of(option: Option, value: str = "") -> list[str]:
    """Return what an error line may call an option, or its value."""
    plain = option.name.replace("_", "-")
    words = [option.written or plain, plain, option.name, plain.replace("-", " ")]
    shown = [ascii(value[:40])[1:-1], value.strip()[:40]] if value.strip() else ["''", "error: :"]
    shown.append(value.partition(",")[0].strip() or "error:")
    shown += ["no source is named", "no name", "followed by an empty value"] if not value else []
    beside = [word for word in BESIDE.get(option.written or "", "").split() if "--" in word]
    return [*words, *shown, *beside]


def some(values: Sequence[T], every: int, command: Command, option: Option) -> Sequence[T]:
    """Return each n-th value, from another one for each option.

    What reads numbers and files is shared: each option meets some of the values, each value many
    options, and all together take minutes.
    """
    begin = zlib.crc32(f"{command.name} {option.name}".encode()) % every
    return values[begin::every]


class Place:
    """A finished run that cases begin anew, made again after one that worked."""

    def __init__(self, campaign: Campaign, command: Command) -> None:
        self.campaign, self.command = campaign, command
        self.out: Path | None = None

    def run(self, option: Option, value: str, *, may_work: bool = True, what: str = "",
            names: list[str] | None = None) -> None:  # fmt: skip
        campaign, command = self.campaign, self.command
        finished = campaign.world / "runs" / command.slug
        if self.out is None:
            self.out = campaign.copy(finished) if finished.exists() else campaign.fresh()
        changed = ""
        for name in ("copied", "runs/generate"):
            if command.name in CHANGES_ITS_INPUT and option.written is not None:
                changed = str(campaign.world / name)
                if changed in command.line(campaign.world):
                    self.out = campaign.copy(Path(changed))
                    break
        words = command.line(campaign.world, option, value, out=self.out)
        words = [str(self.out) if word and word == changed else word for word in words]
        if command.has("--overwrite"):
            words.insert(len(command.name.split()), "--overwrite")
        names = names_of(option, value) if names is None else names
        code = campaign.run(
            words, names=[*names, *EARLIER.get(command.name, [])] if names else [],
            kept=self.out if self.out.exists() else None, may_work=may_work, what=what,
        )  # fmt: skip
        if code not in (1, 2):
            if self.out.is_dir():
                shutil.rmtree(self.out)
            self.out = None


@pytest.mark.slow
@pytest.mark.parametrize(("command", "option"), EACH)
def test_bad_value(campaign: Campaign, command: Command, option: Option) -> None:
    place = Place(campaign, command)
    name = option.written or option.name
    if option.kind in (int, float):
        for value in some(NUMBERS, 2, command, option):
            right = value in RIGHT_NUMBERS.get(name, ())
            if not right or command.name not in NO_RUN:
                place.run(option, value, may_work=right or value == "0")
        return
    for text in some(TEXTS, 3, command, option):
        place.run(option, text, may_work=name in FREE_TEXTS)
    if option.is_path:
        files = sorted((campaign.world / "bad").iterdir())
        for path in some(files, 10 if option.written is None else 40, command, option):
            place.run(option, str(path), names=[])


@pytest.mark.slow
@pytest.mark.parametrize(("command", "option"), [one for one in EACH if one.values[1].is_model])
def test_bad_model(campaign: Campaign, command: Command, option: Option) -> None:
    place = Place(campaign, command)
    for what, change in some(list(MODELS.items()), 3, command, option):
        good = campaign.copy(good_model(campaign.world, command, option))
        change(good, campaign.folder / MARK)
        # Word vectors have neither config nor tokenizer of a model; more of them harm nothing.
        unread = "weights" not in what or "another shape" in what
        fine = what in HARMLESS or (good.name == "static" and unread)
        place.run(option, str(good), may_work=fine, what=what, names=[] if fine else [good.name])


def good_model(world: Path, command: Command, option: Option) -> Path:
    """Return the folder of a model that the option takes."""
    words = command.line(world)
    if option.written is None:
        return Path(words[len(command.name.split())])
    kinds = {"--against": "runs/train-classifier/model", "--scorer": "scorer"}
    default = (
        "static" if command.name.startswith("bank") or command.name == "augment" else "encoder"
    )
    at = words.index(option.written) if option.written in words else None
    if option.written == "--against" and command.name == "evaluate tag":
        return world / "runs/train-tagger/model"
    return Path(words[at + 1]) if at is not None else world / kinds.get(option.written, default)
