"""Rewriting: what is kept of a search, when it goes on, and what every text gets."""

import math
import pickle
from pathlib import Path

import pytest

from tests.tiny import save_encoder
from tests.tiny.bart import save_bart
from tests.tiny.rewriter import Fake, fake_model, fake_polarity, fake_scorer
from tilth.errors import InputError
from tilth.paraphrase.rewriter import (
    COPY_COSTS,
    EMPTY,
    LITERAL,
    LOW,
    NOTHING,
    POLARITY,
    TOO_LONG,
    Rewriter,
    literals_of,
    load_paraphraser,
)
from tilth.paraphrase.tags import TAGS

SENTENCE = "The old kite hangs high in the oak tree."
FAR = "Way up among branches some toy dangles."
CLOSE = "The old kite hangs high in the oak."
HALF = "The old kite is hanging up in that tree."


def test_the_tags_of_the_asked_cell_stand_before_the_text(fake: Fake) -> None:
    rewriter, outputs = fake(lambda _, __: [FAR])
    rewriter.rewrite([SENTENCE], meaning=97.5, wording=22, steer=False)
    prefix, texts, search, _ = outputs.calls[0]
    assert (prefix, texts) == ("<SIM95> <BLEU20> ", [SENTENCE])
    assert (search.beams, search.samples, search.shortest, search.longest) == (5, False, 0.75, 1.5)


def test_without_steering_the_best_of_the_search_counts(fake: Fake) -> None:
    rewriter, outputs = fake(lambda _, __: [CLOSE, FAR])
    found = rewriter.rewrite([SENTENCE], meaning=95, wording=5, steer=False)[0]
    assert found.text == CLOSE  # although the second lies in the asked cell
    assert found.meaning == 96.0
    assert 70 < found.wording < 100
    assert (found.asked_meaning, found.asked_wording) == (95, 5)
    assert not found.inside
    assert found.tries == len(outputs.calls) == 1


def test_the_sentence_itself_is_no_rewrite(fake: Fake) -> None:
    same = SENTENCE.upper().replace(".", "!")
    rewriter, _ = fake(lambda _, __: [SENTENCE, same, FAR])
    found = rewriter.rewrite([SENTENCE], n=2)[0]
    assert [one.text for one in found] == [FAR]
    rewriter, _ = fake(lambda _, __: [same])
    assert rewriter.rewrite([SENTENCE])[0].problem == NOTHING


def test_checking_takes_the_nearest_and_tries_again_only_where_it_must(fake: Fake) -> None:
    def write(text: str, number: int) -> list[str]:
        if text == SENTENCE:
            return [CLOSE, FAR]
        words = text.removesuffix(".").split()
        return [" ".join([*words[: len(words) - min(number, 2)], "now"])]

    rewriter, outputs = fake(write)
    other = "My big brown dog is lost today."
    found = rewriter.rewrite([SENTENCE, other], wording=5, tries=6)
    assert (found[0].text, found[0].inside, found[0].tries) == (FAR, True, 1)
    assert found[1].text == "My big brown dog is now"
    # Two searches came nearer, the third did not and is the last.
    assert [call[1] for call in outputs.calls] == [[SENTENCE, other]] + [[other]] * 3
    assert [call[2].samples for call in outputs.calls] == [False, True, True, True]
    assert len({call[3] for call in outputs.calls}) == 4  # each try draws anew


def test_texts_that_are_none_are_named(fake: Fake) -> None:
    rewriter, _ = fake(lambda text, _: [text])
    with pytest.raises(InputError, match=r"texts\[1\] holds half a character, '\\ud83d'"):
        rewriter.rewrite(["", "half \ud83d"])
    with pytest.raises(InputError, match=r"texts\[0\] is 5: every one is a text"):
        rewriter.rewrite([5])  # type: ignore[list-item]


def test_steering_takes_the_nearest_of_one_search(fake: Fake) -> None:
    rewriter, outputs = fake(lambda _, __: [CLOSE, HALF, FAR])
    low, high = (rewriter.rewrite([SENTENCE], wording=wording)[0] for wording in (5, 40))
    assert (low.text, low.inside, high.text) == (FAR, True, HALF)
    assert [call[2].copy_costs for call in outputs.calls] == [COPY_COSTS] * 2
    assert outputs.calls[0][2].beams * len(COPY_COSTS) == 10


def test_meaning_counts_beside_wording(fake: Fake) -> None:
    other = "A worn kite dangles way up there."
    rewriter, _ = fake(lambda _, __: [FAR, other], lambda _, text: 40.0 if "toy" in text else 90.0)
    found = rewriter.rewrite([SENTENCE], meaning=95, wording=5, tries=2)[0]
    assert (found.text, found.tries) == (other, 2)


def test_several_sentences_are_rewritten_one_by_one(fake: Fake) -> None:
    answers = {"It rained all day.": ["Rain fell from dawn to dusk."], "Oh!": ["Oh!"]}
    rewriter, outputs = fake(lambda text, _: answers.get(text, [HALF]), lambda _, __: 90.0)
    found = rewriter.rewrite([f"{SENTENCE}\nIt rained all day. Oh!", "It rained all day."])
    assert outputs.calls[0][1] == [SENTENCE, "It rained all day.", "Oh!"]  # each once
    assert found[0].text == f"{HALF} Rain fell from dawn to dusk. Oh!"
    assert found[0].meaning == pytest.approx((90 + 90 + 100) / 3)
    assert found[1].text == "Rain fell from dawn to dusk."


def test_what_is_broken_or_below_the_least_meaning_is_no_rewrite(fake: Fake) -> None:
    rewriter, _ = fake(
        lambda _, __: [f"{FAR}\ufffd", "A toy.", FAR], lambda _, text: 2.0 * len(text)
    )

    def texts(least: float) -> list[str]:
        return [one.text for one in rewriter.rewrite([SENTENCE], n=3, min_meaning=least)[0]]

    assert texts(70) == [FAR]
    assert set(texts(0)) == {FAR, "A toy."}
    assert rewriter.rewrite([SENTENCE], min_meaning=80)[0].problem == LOW
    assert rewriter.rewrite([SENTENCE])[0].problem == LOW
    assert rewriter.rewrite([SENTENCE], meaning=72)[0].text == FAR  # down to the step's 70


def test_rewrites_that_differ_in_punctuation_alone_are_one(fake: Fake) -> None:
    rewriter, _ = fake(lambda _, __: [FAR, FAR.rstrip(".") + "!", HALF])
    assert {one.text for one in rewriter.rewrite([SENTENCE], n=3)[0]} == {FAR, HALF}


def test_a_least_meaning_of_0_leaves_nothing_out(fake: Fake) -> None:
    rewriter, _ = fake(lambda _, __: [FAR], lambda *_: -3.0)
    assert rewriter.rewrite([SENTENCE], min_meaning=0)[0].text == FAR
    assert rewriter.rewrite([SENTENCE], min_meaning=1)[0].problem == LOW


def test_the_papers_search_takes_the_best_be_it_the_sentence_itself(fake: Fake) -> None:
    rewriter, _ = fake(lambda _, __: [SENTENCE, FAR])
    assert rewriter.rewrite([SENTENCE], steer=False, min_meaning=0)[0].text == SENTENCE
    assert rewriter.rewrite([SENTENCE], steer=False)[0].text == FAR


def test_what_says_the_opposite_is_left_out_and_counted(fake: Fake) -> None:
    flip = "The old kite does not hang in that tree."
    outputs = {SENTENCE: [flip, HALF, FAR], "It rained.": ["It did not rain."]}
    rewriter, _ = fake(lambda text, _: outputs[text])
    rewriter.polarity = fake_polarity(lambda _, text: " not " in text)
    kept, two = (rewriter.rewrite([SENTENCE], wording=40, n=n) for n in (1, 3))
    assert (kept[0].text, kept[0].flips) == (HALF, 1)
    assert [one.text for one in two[0]] == [HALF, FAR]
    dropped, both = rewriter.rewrite(["It rained.", f"It rained. {SENTENCE}"], wording=40)
    assert (dropped.problem, dropped.flips) == (POLARITY, 1)
    assert (both.text, both.flips) == (f"It rained. {HALF}", 2)  # the first stays as it is


def test_tags_inside_a_text_are_no_tags(fake: Fake) -> None:
    rewriter, outputs = fake(lambda _, __: [FAR])
    found = rewriter.rewrite(["Say <BLEU40> and <eos> aloud."])[0]
    assert outputs.calls[0][1] == ["Say < BLEU40> and < eos> aloud."]
    assert found.source == "Say <BLEU40> and <eos> aloud."


@pytest.mark.parametrize("text", ["", "  \n\t "])
def test_an_empty_text_has_a_problem(fake: Fake, text: str) -> None:
    rewriter, _ = fake(lambda _, __: [FAR])
    empty, whole = rewriter.rewrite([text, SENTENCE])
    assert (empty.problem, empty.text, empty.source) == (EMPTY, "", text)
    assert math.isnan(empty.meaning)
    assert whole.problem is None


def test_a_text_that_the_model_cannot_read_has_a_problem(fake: Fake) -> None:
    rewriter, outputs = fake(lambda text, _: [FAR] if "kite" in text else [])
    found = rewriter.rewrite(["word " * 5000, f"{SENTENCE} {'word ' * 300}"], n=3, tries=4)
    assert [[one.problem for one in answer] for answer in found] == [[TOO_LONG]] * 2
    assert "word" not in " ".join(outputs.calls[-1][1])  # it is not tried again


def test_several_rewrites_are_different_and_best_first(fake: Fake) -> None:
    rewriter, _ = fake(lambda _, __: [CLOSE, HALF, FAR, FAR])
    found = rewriter.rewrite([SENTENCE], wording=5, n=3)[0]
    assert [one.text for one in found] == [FAR, HALF, CLOSE]


def test_one_text_instead_of_a_list_is_refused(fake: Fake) -> None:
    rewriter, _ = fake(lambda _, __: [FAR])
    with pytest.raises(InputError, match="give a list"):
        rewriter.rewrite(SENTENCE)
    with pytest.raises(InputError, match=r"texts\[1\] is None"):
        rewriter.rewrite([SENTENCE, None])


def test_a_model_without_the_tags_is_refused() -> None:
    model = fake_model([tag for tag in TAGS if tag != "<SIM80>"])
    with pytest.raises(InputError, match="'fake' has no tag <SIM80>"):
        Rewriter(model, fake_scorer(lambda _, __: 0.0))


def test_a_pickled_rewriter_loads_the_models_of_its_names(tmp_path: Path) -> None:
    name, scorer = str(save_bart(tmp_path / "bart", *TAGS)), save_encoder(tmp_path / "bert")
    how = {"scorer": f"cosine:{scorer}", "polarity": False, "precision": "bfloat16"}
    rewriter = load_paraphraser(name, device="cpu", **how)  # type: ignore[arg-type]
    data = pickle.dumps(rewriter)
    found = pickle.loads(data)
    assert found.fingerprints() == rewriter.fingerprints()
    assert (found.seq2seq.name, found.scorer.name, found.polarity) == (name, how["scorer"], None)
    save_bart(tmp_path / "bart", *TAGS, seed=1)
    with pytest.raises(InputError, match=r"^model: the weights on host .* are not those of"):
        pickle.loads(data)


def test_urls_addresses_paths_and_code_come_out_as_they_are(fake: Fake) -> None:
    text = "Open https://a.example/cart?id=7, and write to me@a.example about f(x) in src/a/b.py."
    kept = "Look at https://a.example/cart?id=7: tell me@a.example of f(x), which src/a/b.py holds."
    rewriter, _ = fake(lambda _, __: [kept.replace("?id", " ? id"), kept])
    found = rewriter.rewrite([text])[0]
    assert (found.text, found.problem) == (kept, None)
    for lost in ("https://a.example/cart?id=7", "me@a.example", "f(x)", "src/a/b.py"):
        rewriter, _ = fake(lambda _, __, lost=lost: [kept.replace(lost, "it")])
        assert rewriter.rewrite([text])[0].problem == LITERAL


@pytest.mark.parametrize(
    "text",
    ["He paid 5$ and/or 3 (maybe) <br /> on 12/05/2020.", "I <3 the _very_ best writer(s), 24/7.",
     "``It's a film,'' said `he', `slow' or not.", "Singers/songwriters/players sang: :-)",
     "Rock/pop.It rose and/or.that; child(ren) and Smith(2010) of CO(2): don\\'t."],
)  # fmt: skip
def test_plain_text_has_no_literals(text: str) -> None:
    assert literals_of(text) == []
