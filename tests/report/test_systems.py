from typing import Any

import pytest

from tilth.report.systems import (
    ALONE,
    ENCODER,
    MAJORITY,
    TEACHER,
    TFIDF,
    figure,
    gain_name,
    gains_of,
    interval,
    unsure_gains,
    warnings_of,
)


@pytest.mark.parametrize(
    ("name", "base", "said"),
    [
        (TEACHER, "starter-small", "take the teacher, RUN/teacher"),
        (ENCODER, "starter-small", "train with --base starter-encoder"),
        (TFIDF, "starter-encoder", "more labelled rows"),
        (ALONE, "starter-small", "take the labelled rows alone"),
    ],
)
def test_what_is_better_at_hand_is_named_with_a_remedy(name: str, base: str, said: str) -> None:
    def tested(value: float) -> dict[str, Any]:
        figure = {"value": 50.0 - value, "low": -9.0, "high": 4.0, "p": 0.3}
        return {
            "source": "RUN", "base": base,
            "tested": {
                "systems": [
                    {"name": "trained", "scores": {"accuracy": {"value": 50.0}}},
                    {"name": name, "scores": {"accuracy": {"value": value}}},
                    {"name": MAJORITY, "scores": {"accuracy": {"value": 20.0}}},
                ],
                "differences": {one: {"accuracy": figure} for one in (name, MAJORITY)},
            },
        }  # fmt: skip

    (line,) = warnings_of(tested(53.5))
    assert line.startswith(f"Warning: {name} has accuracy 53.5, this model 50.0 (difference 95%: ")
    assert said in line
    assert warnings_of(tested(50.0)) == warnings_of(tested(42.0)) == []
    assert warnings_of({**tested(60.0), "tested": None}) == []
    # The interval of the gain over the best of the others holds 0.
    notes = unsure_gains(tested(42.0))
    assert notes
    assert all("The gain over " in one and "(-9.0 to +4.0) may be chance" in one for one in notes)
    assert unsure_gains(tested(53.5)) == []
    both = tested(42.0)
    for figures in both["tested"]["differences"].values():  # of several labels a row
        figures["macro_f1"] = {**figures["accuracy"], "low": 1.0}
        figures["micro_f1"] = figures["accuracy"]
    assert unsure_gains(both) == []


def test_a_model_that_answers_one_label_alone_is_warned_of() -> None:
    def tested(answered: dict[str, int]) -> list[str]:
        classes = {name: {"n": 7, "predicted": answered.get(name, 0)} for name in ("no", "yes")}
        scores = {"n": 14, "accuracy": {"value": 50.0}, "classes": classes, "confusion": []}
        systems = [{"name": "trained", "scores": scores}]
        return warnings_of({
            "source": "RUN", "base": "starter-encoder",
            "tested": {"systems": systems, "differences": {}},
        })  # fmt: skip

    (line,) = tested({"no": 14})
    assert line.startswith(
        "Warning: this model answers 'no' for all 14 rows: train longer (--epochs), or train with "
    )
    assert tested({"no": 13, "yes": 1}) == []


@pytest.mark.parametrize(("key", "more"), [("macro_f1", {"micro_f1": {"value": 0.0}}), ("f1", {})])
def test_a_model_that_finds_nothing_is_warned_of(key: str, more: dict[str, Any]) -> None:
    for value, count in ((0.0, 1), (0.1, 0)):
        scores = {"n": 14, key: {"value": value}, "classes": {}, **more}
        tested = {"systems": [{"name": "trained", "scores": scores}], "differences": {}}
        lines = warnings_of({"source": "RUN", "base": "starter-encoder", "tested": tested})
        assert len([line for line in lines if "F1 0 on 14 rows: train longer" in line]) == count


def test_small_losses_are_no_negative_zero() -> None:
    assert figure({"value": -0.04}, "+") == "+0.0"
    assert interval({"low": -0.04, "high": 0.04}) == "0.0 to 0.0"
    assert gain_name("SetFit", -0.04) == "gain over SetFit"
    assert gain_name("SetFit", -0.06) == "loss to SetFit"


def test_gains_of_several_labels_are_named_by_the_macro_f1() -> None:
    scores = {name: {"value": 50.0} for name in ("accuracy", "micro_f1", "macro_f1")}
    lead = {**scores, "accuracy": {"value": -5.0}, "macro_f1": {"value": 7.0}}
    systems = [{"name": name, "scores": scores} for name in ("trained", ALONE)]
    results = {"tested": {"systems": systems, "differences": {ALONE: lead}}}
    assert [*gains_of(results)] == [f"gain over {ALONE}"]
