"""Chat templates: the prompts of instruction-tuned models, with the answer opened for the model.

The instruction is the user's turn; the model's turn begins with the instruction's quotation mark,
so that the answer is decoded up to the closing one, as a base model's is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilth.errors import InputError, one_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_OPENED = '"'
# Llama 3's and others state the day: a run begun today and ended tomorrow has the same prompts.
# The date is the one that Llama's own template falls back on.
_NO_CLOCK = "{%- macro strftime_now(form) -%}26 Jul 2024{%- endmacro %}"

_Messages = list[dict[str, str]]


def has_chat_template(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a tokenizer comes with a chat template."""
    return bool(getattr(tokenizer, "chat_template", None))


def chat_prompt(tokenizer: PreTrainedTokenizerBase, instruction: str, system: str = "") -> str:
    r"""Return an instruction that ends with `"` as a chat whose answer begins with `"`.

    Thinking is switched off where the template has a switch; a template without a system role
    gets the system prompt at the head of the user's turn. The text holds all special tokens.

    Raises:
        InputError: the template fails, or drops a message.
    """
    asked = instruction.removesuffix(_OPENED).rstrip()
    prompts = [{"role": "system", "content": system}] if system else []
    user, answer = {"role": "user", "content": asked}, {"role": "assistant", "content": _OPENED}
    try:
        prompt = _render(tokenizer, [*prompts, user, answer])
    except Exception as error:  # a template is a model's own code
        if not system:
            said = one_line(error)
            raise InputError(
                f"the model's chat template fails ({said:.200}): leave it out with --no-chat"
            ) from error
        prompt = ""
    if system and system.strip() not in prompt:
        return chat_prompt(tokenizer, f"{system}\n\n{instruction}")
    if asked.strip() not in prompt:
        raise InputError("the model's chat template drops messages: leave it out with --no-chat")
    return prompt


def end_of_turn_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the ids of the special tokens that the template writes right after an answer."""
    answer = "the answer"
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}]
    after = _render(tokenizer, turns, is_open=False).rpartition(answer)[2].strip()
    ids: Sequence[int] = tokenizer(after, add_special_tokens=False)["input_ids"]
    special = getattr(tokenizer, "added_tokens_decoder", {})
    return {ids[0]} if ids and ids[0] in special else set()


def _render(
    tokenizer: PreTrainedTokenizerBase, messages: _Messages, *, is_open: bool = True
) -> str:
    template: Any = tokenizer.get_chat_template()
    return str(
        tokenizer.apply_chat_template(
            messages, tokenize=False, continue_final_message=is_open, enable_thinking=False,
            chat_template=_NO_CLOCK + template if "strftime_now" in template else template,
        )
    )  # fmt: skip
