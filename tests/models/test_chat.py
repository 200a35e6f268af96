from typing import Any

import pytest

from tests.tiny import tiny_tokenizer
from tests.tiny.chats import CHATS, chat_tokenizer
from tilth.errors import InputError
from tilth.models.chat import chat_prompt, end_of_turn_ids, has_chat_template

INSTRUCTION = 'Say.\nText: "'


@pytest.mark.parametrize("kind", CHATS)
def test_a_prompt_is_what_the_template_gives_and_the_opened_answer(kind: str) -> None:
    tokenizer, chat = chat_tokenizer(kind), CHATS[kind]
    assert has_chat_template(tokenizer)
    assert chat_prompt(tokenizer, INSTRUCTION) == chat.opened
    assert chat_prompt(tokenizer, INSTRUCTION, "Be.") == chat.opened_with_system


@pytest.mark.parametrize("kind", CHATS)
def test_the_end_of_a_turn_is_found_in_the_template(kind: str) -> None:
    tokenizer = chat_tokenizer(kind)
    assert end_of_turn_ids(tokenizer) == {tokenizer.convert_tokens_to_ids(CHATS[kind].end)}


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3"])
def test_a_prompt_without_thinking_is_that_of_the_generation_prompt(kind: str) -> None:
    tokenizer: Any = chat_tokenizer(kind)
    turns = [{"role": "system", "content": "Be."}, {"role": "user", "content": "Say.\nText:"}]
    plain = tokenizer.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=True, date_string="26 Jul 2024"
    )
    assert chat_prompt(tokenizer, INSTRUCTION, "Be.") == plain + '"'


def test_one_of_several_templates_is_the_default() -> None:
    tokenizer = chat_tokenizer("qwen2")
    expected = chat_prompt(tokenizer, INSTRUCTION)
    tokenizer.chat_template = {"default": tokenizer.chat_template, "tool_use": "{{ 1 / 0 }}"}
    assert chat_prompt(tokenizer, INSTRUCTION) == expected


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (
            "{{ messages[0].content + raise_exception('no chat') }}",
            r"fails \(no chat\): leave it out with --no",
        ),
        ("{% for", "chat template fails"),
        ("{{ messages[-1].content }}", "chat template drops messages"),
    ],
)
def test_a_broken_template_is_an_error_of_one_line(template: str, said: str) -> None:
    tokenizer = tiny_tokenizer()
    assert not has_chat_template(tokenizer)
    tokenizer.chat_template = template
    for system in ("", "Be."):
        with pytest.raises(InputError, match=said):
            chat_prompt(tokenizer, INSTRUCTION, system)


def test_an_answer_may_end_without_a_special_token() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for turn in messages %}{{ turn.content }}\n{% endfor %}"
    assert end_of_turn_ids(tokenizer) == set()
