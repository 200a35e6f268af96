from collections import Counter

import numpy as np
import pytest

from tests.selftrain.labelled import as_rows, classed, several, tagged
from tilth.classifiers.examples import LabeledExamples, strata
from tilth.errors import InputError
from tilth.selftrain.few_shot import draw, draw_validation


def texts(rows: LabeledExamples, places: np.ndarray) -> set[tuple[str, ...]]:
    return {rows.texts[place] for place in places}


def test_each_class_has_as_many_rows() -> None:
    rows = as_rows(classed(90))
    places = draw(rows, 7, seed=3)
    assert rows.targets[places].sum(axis=0).tolist() == [7, 7, 7]
    assert places.tolist() == sorted(set(places.tolist()))


def test_draws_follow_seed_and_content_not_order() -> None:
    many = classed(90)
    rows, turned = as_rows(many), as_rows(many[::-1])
    assert texts(rows, draw(rows, 5, seed=1)) == texts(turned, draw(turned, 5, seed=1))
    assert texts(rows, draw(rows, 5, seed=1)) != texts(rows, draw(rows, 5, seed=2))
    one, two = (draw_validation(some, 20, seed=1) for some in (rows, turned))
    assert texts(rows, one) == texts(turned, two)
    assert texts(rows, one) != texts(rows, draw_validation(rows, 20, seed=2))


def test_equal_texts_and_those_of_the_test_set_are_not_drawn() -> None:
    many = classed(30)
    rows = as_rows(many + many)
    assert len(texts(rows, draw(rows, 9))) == 27
    exclude = set(rows.texts[:15])
    for places in (draw(rows, 9, exclude=exclude), draw_validation(rows, 30, exclude=exclude)):
        assert not texts(rows, places) & exclude
        assert len(texts(rows, places)) == len(places) == 15
    spelt = {(f"{text.upper()} !",) for (text,) in exclude}
    assert texts(rows, draw(rows, 9, exclude=spelt)) == texts(rows, draw(rows, 9, exclude=exclude))
    with pytest.raises(InputError, match="'animal': no row of it can be drawn"):
        draw(rows, 9, exclude=set(rows.texts))
    with pytest.raises(InputError, match="200 validation rows of 0"):
        draw_validation(rows, exclude=set(rows.texts))


def test_rows_of_several_classes_count_for_each() -> None:
    rows = as_rows(several(200))
    places = draw(rows, 10, seed=1)
    assert (rows.targets[places].sum(axis=0) >= 10).all()
    assert len(places) <= 30  # of both classes, and of none


def test_rows_without_a_class_are_drawn_as_those_of_one() -> None:
    some = [{"text": f"both {n}", "labels": ["x", "y"][: n % 2 + 1]} for n in range(20)]
    rows = as_rows([*some, *({"text": f"none {n}", "labels": []} for n in range(20))])
    drawn = rows.targets[draw(rows, 6)]
    assert (drawn.sum(axis=1) == 0).sum() == 6
    assert len(rows.targets[draw(as_rows(some), 6)]) <= 12


def test_sentences_are_drawn_in_the_shares_of_their_types() -> None:
    rows = as_rows(tagged(300))
    places = draw(rows, 3, sentences=60)
    assert len(places) == 60
    whole, drawn = (Counter(strata(rows)[some].tolist()) for some in (np.arange(300), places))
    assert all(abs(drawn[group] - whole[group] / 5) < 1 for group in whole)


def test_validation_rows_have_the_sets_shares_of_labels() -> None:
    many = classed(300)
    kept = [row for row in many if row["label"] == "animal"]
    kept += [row for row in many if row["label"] == "water"][:50]
    rows = as_rows(kept)
    places = draw_validation(rows, 30)
    assert rows.targets[places].sum(axis=0).tolist() == [20, 10]
    assert draw_validation(rows, 1000).tolist() == list(range(150))


@pytest.mark.parametrize(("per_class", "sentences"), [(0, 200), (20, 0)])
def test_nothing_cannot_be_drawn(per_class: int, sentences: int) -> None:
    with pytest.raises(InputError, match="at least one"):
        draw(as_rows(classed(30)), per_class, sentences=sentences)
