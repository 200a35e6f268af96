"""Instruction-tuned models write as base models do, but for their prompts and ends of turns."""

from pathlib import Path
from typing import Any

import pytest
import torch

import tilth
from tests.tiny import read_json, tiny_lm
from tests.tiny.calls import watched
from tests.tiny.chats import CHATS, chat_lm
from tests.tiny.jobs import run_jobs
from tilth.errors import InputError
from tilth.generation import engine as engines
from tilth.generation.attempts import Job, job_key
from tilth.generation.engine import Engine, Vocabulary, check_model
from tilth.generation.generate import GenerateRequest
from tilth.generation.kv_cache import PromptCache
from tilth.generation.settings import GenerateSettings, Sampling
from tilth.generation.task import load_task
from tilth.models.chat import chat_prompt
from tilth.models.lm import LM

TEXTS = ['the dog runs on the "red" sea', "a man  reads"]
TASK = load_task("sts-x2")


def request(lm: LM, **settings: Any) -> GenerateRequest:
    return GenerateRequest(TASK, lm, GenerateSettings(**settings), inputs=TEXTS)


@pytest.mark.parametrize("kind", CHATS)
def test_every_prompt_is_the_templates_own_for_the_whole_instruction(kind: str) -> None:
    lm = chat_lm(kind)
    check_model(lm)
    for system in ("", "Be brief."):
        prompted = request(lm, system=system).prompted()
        for label, plain in zip(prompted.labels, TASK.labels, strict=True):
            for text in TEXTS:
                own, *counters = prompted.prompts(plain, text)
                assert own == chat_prompt(lm.tokenizer, plain.prompt(text), system)
                assert own.endswith('"')
                asked = TASK.prompts(plain, text)[1:]
                assert counters == [chat_prompt(lm.tokenizer, one, system) for one in asked]
                assert label.counter_labels == plain.counter_labels


@pytest.mark.parametrize("kind", CHATS)
def test_special_tokens_of_an_input_are_text(kind: str) -> None:
    lm = chat_lm(kind)
    marks = {one for one in lm.tokenizer.all_special_tokens if len(one) > 1}
    label = request(lm).prompted().labels[0]

    def special(text: str) -> int:
        ids = lm.tokenizer(label.prompt(text), add_special_tokens=False)["input_ids"]
        return sum(one in lm.tokenizer.all_special_ids for one in ids)

    for mark in marks - {lm.tokenizer.unk_token}:
        assert special(f"a dog {mark} runs") == special("a dog runs"), mark


@pytest.mark.parametrize("kind", CHATS)
def test_no_special_token_is_doubled(kind: str) -> None:
    lm, chat = chat_lm(kind), CHATS[kind]
    (prompt,) = {one.prompt("a dog") for one in request(lm).prompted().labels[:1]}
    cache = PromptCache(lm, whole=True)
    cache.tokenise([prompt])
    ids = cache._tokens[prompt]
    assert lm.tokenizer.decode(ids) == prompt
    begins = [chat.bos] if chat.opened.startswith("<bos>") else []
    assert lm.tokenizer.convert_ids_to_tokens(ids).count("<bos>") == len(begins)


@pytest.mark.parametrize("kind", CHATS)
@torch.inference_mode()
def test_debiasing_compares_the_logits_after_the_opened_answer(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = chat_lm(kind)
    label = TASK.labels[2]
    prompts = request(lm).prompted().prompts(label, TEXTS[0])
    calls = watched(monkeypatch, engines, "debiased_distribution")
    job = Job(0, "s", label.name, 0, prompts, job_key(0, "s", label.name, 0))
    engine = Engine(lm, Sampling(max_new_tokens=4), rows=8)
    decoded = watched(monkeypatch, Vocabulary, "decode")
    assert len(run_jobs(engine, [job])) == 1
    (((_, written), _),) = decoded
    assert len(calls) == len(written)
    for step, ((logits, members, _), _) in enumerate(calls):
        for row, prompt in zip(members[0].tolist(), prompts, strict=True):
            ids = lm.tokenizer(prompt, add_special_tokens=False)["input_ids"] + written[:step]
            plain = lm.model(input_ids=torch.tensor([ids], device=lm.device)).logits[0, -1]
            drawn = logits[row].isfinite()  # banned tokens are not
            torch.testing.assert_close(logits[row][drawn], plain[drawn], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", CHATS)
def test_an_end_of_the_turn_closes_a_text(kind: str) -> None:
    lm = chat_lm(kind)
    end = lm.tokenizer.convert_tokens_to_ids(CHATS[kind].end)
    words = lm.tokenizer(" the dog", add_special_tokens=False)["input_ids"]
    chat, plain = Vocabulary(lm, chat=True), Vocabulary(lm)
    for closing in (end, 0):  # 0: the end of the sequence
        assert chat.ends[closing]
        assert closing not in chat.banned
        assert chat.decode([*words, closing]) == ' the dog"'
        assert closing in plain.banned
    begin = lm.tokenizer.convert_tokens_to_ids(CHATS[kind].tokens[0])
    assert begin in chat.banned
    assert chat.decode(words) == " the dog"


@pytest.mark.parametrize("kind", CHATS)
def test_a_model_that_ends_its_turn_at_once_in_a_word(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = chat_lm(kind)
    word = lm.tokenizer(" sea", add_special_tokens=False)["input_ids"][0]
    end = lm.tokenizer.convert_tokens_to_ids(CHATS[kind].end)
    script = iter([word, end, end, end])  # a text, and one that is empty

    def scripted(logits: Any, members: Any, _: Any) -> Any:
        ids = torch.tensor([[next(script)]])
        return ids, torch.ones(1, 1), torch.ones(1, 1)

    monkeypatch.setattr(engines, "debiased_distribution", scripted)
    prompt = request(lm).prompted().labels[0].prompt("a dog")
    found = [
        run_jobs(Engine(lm, Sampling(), rows=1), [Job(0, "s", "1", 0, (prompt,), bytes(16))])
        for _ in range(2)
    ]
    outcomes = [(one.text, one.reason) for each in found for one in each.values()]
    assert outcomes == [(" sea", None), ("", "empty")]


def test_rows_differ_with_the_template_and_with_the_system_prompt(tmp_path: Path) -> None:
    lm = chat_lm("llama")
    found = []
    settings: list[dict[str, Any]] = [{}, {"chat": False}, {"system": "Be brief."}]
    for number, given in enumerate(settings):
        kept = tilth.generate("sts-x2", lm, TEXTS, out=tmp_path / str(number), **given)
        found.append(sorted(kept["text_b"]))
    assert all(found)
    assert found[0] != found[1] != found[2] != found[0]
    recorded = [read_json(tmp_path / str(number) / "run.json")["settings"] for number in range(3)]
    assert [one["chat"] for one in recorded] == [True, False, True]
    assert [one["system"] for one in recorded] == ["", "", "Be brief."]
    assert recorded[0]["task"] == TASK.to_dict()


def test_another_template_is_another_run(tmp_path: Path) -> None:
    lm = chat_lm("qwen2")
    tilth.generate("sts-x2", lm, TEXTS, out=tmp_path / "run")
    lm.tokenizer.chat_template = str(CHATS["qwen2"].template).replace("helpful", "brief")
    with pytest.raises(InputError, match="the chat prompts are not the same"):
        tilth.generate("sts-x2", lm, TEXTS, out=tmp_path / "run")


def test_a_model_without_a_template_takes_no_system_prompt() -> None:
    for lm, chat in ((tiny_lm("llama"), True), (chat_lm("llama"), False)):
        assert not request(lm, chat=chat).settings.chat
        with pytest.raises(InputError, match="without a chat template: leave out --system"):
            request(lm, chat=chat, system="Be brief.")
