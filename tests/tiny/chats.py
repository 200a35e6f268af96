"""Chat templates built like those of well-known models, and tiny models that have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import processors
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)  # fmt: skip

from tests.tiny import tiny_tokenizer
from tilth.models.device import choose_device
from tilth.models.lm import LM
from tilth.models.pretrained import fingerprint_model


@dataclass(frozen=True)
class Chat:
    """A kind of instruction-tuned model.

    Attributes:
        template: written for these tests; its turns, tokens and switches are those of the model.
        bos: the token that the tokenizer puts before a plain text; empty: none.
        end: ends a turn; the model's configuration names it as an end only where `is_eos`.
        opened: what the prompt of `Say.\nText: "` is, with and without the system prompt "Be.".
    """

    config: Any
    model: Any
    template: str
    tokens: tuple[str, ...]
    opened: str
    opened_with_system: str
    bos: str = ""
    end: str = "<|im_end|>"
    is_eos: bool = True


_CHATML = """\
{%- for message in messages -%}
    {%- if loop.first and message.role != 'system' -%}
        {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' -}}
    {%- endif -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
_QWEN3 = """\
{%- if messages[0].role == 'system' -%}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' -}}
{%- endif -%}
{%- set ns = namespace(last=-1) -%}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}
        {{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' -}}
    {%- elif message.role == 'assistant' -%}
        {%- set thought = '' -%}
        {%- if message.reasoning_content is string -%}
            {%- set thought = message.reasoning_content -%}
        {%- endif -%}
        {{- '<|im_start|>assistant\\n' -}}
        {%- if loop.index0 > ns.last and (loop.last or thought) -%}
            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' -}}
        {%- endif -%}
        {{- message.content.lstrip('\\n') + '<|im_end|>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if enable_thinking is defined and enable_thinking is false -%}
        {{- '<think>\\n\\n</think>\\n\\n' -}}
    {%- endif -%}
{%- endif -%}
"""
_SMOLLM3 = """\
{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}
{%- set mode = '/think' if enable_thinking else '/no_think' -%}
{{- '<|im_start|>system\\n## Metadata\\n\\nToday Date: ' + strftime_now('%d %B %Y') + '\\n' -}}
{{- 'Reasoning Mode: ' + mode + '\\n\\n' -}}
{%- if messages[0].role == 'system' -%}{{- messages[0].content -}}{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}
        {{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' -}}
    {%- elif message.role == 'assistant' -%}
        {%- if mode == '/think' -%}
            {{- '<|im_start|>assistant\\n' + message.content.lstrip('\\n') + '<|im_end|>\\n' -}}
        {%- else -%}
            {{- '<|im_start|>assistant\\n' + '<think>\\n\\n</think>\\n' -}}
            {{- message.content.lstrip('\\n') + '<|im_end|>\\n' -}}
        {%- endif -%}
    {%- endif -%}
{%- endfor -%}
"""
_LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
_GEMMA2 = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}\
{{ raise_exception('System role not supported') }}{% endif %}\
{% for message in messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate') }}{% endif %}\
{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}\
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}\
{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""
_GEMMA3 = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first = messages[0]['content'] + '\\n\\n' -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set first = "" -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first if loop.first else "") }}
    {{- message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'<start_of_turn>model\\n'}}{%- endif -%}
"""
_PHI3 = """\
{% for message in messages %}{% if message['role'] == 'user' %}\
{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}\
{% elif message['role'] == 'assistant' %}\
{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"""

_IM = ("<|im_start|>", "<|im_end|>")
_EOT = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_TURN = ("<start_of_turn>", "<end_of_turn>")
_USER = "<|im_start|>user\nSay.\nText:<|im_end|>\n<|im_start|>assistant\n"
_META = "<|im_start|>system\n## Metadata\n\nToday Date: 26 Jul 2024\nReasoning Mode: /no_think\n\n"
_NO_THOUGHT = "<think>\n\n</think>\n"
_HEADER = "<|start_header_id|>{}<|end_header_id|>\n\n"
_LLAMA_HEAD = "<bos>" + _HEADER.format("system") + "Today Date: 26 Jul 2024\n\n"
_LLAMA_USER = (
    "<|eot_id|>" + _HEADER.format("user") + "Say.\nText:<|eot_id|>" + _HEADER.format("assistant")
)
_MODEL_TURN = "<end_of_turn>\n<start_of_turn>model\n"
_GEMMA_USER = "<bos><start_of_turn>user\nSay.\nText:" + _MODEL_TURN + '"'
_GEMMA_BOTH = "<bos><start_of_turn>user\nBe.\n\nSay.\nText:" + _MODEL_TURN + '"'

CHATS = {
    "llama": Chat(
        LlamaConfig, LlamaForCausalLM, _LLAMA3, _EOT, bos="<bos>", end="<|eot_id|>",
        opened=f'{_LLAMA_HEAD}{_LLAMA_USER}"', opened_with_system=f'{_LLAMA_HEAD}Be.{_LLAMA_USER}"',
    ),
    "qwen2": Chat(
        Qwen2Config, Qwen2ForCausalLM, _CHATML, _IM,
        opened=f'<|im_start|>system\nYou are helpful.<|im_end|>\n{_USER}"',
        opened_with_system=f'<|im_start|>system\nBe.<|im_end|>\n{_USER}"',
    ),
    "qwen3": Chat(
        Qwen3Config, Qwen3ForCausalLM, _QWEN3, _IM,
        opened=f'{_USER}{_NO_THOUGHT}\n"',
        opened_with_system=f'<|im_start|>system\nBe.<|im_end|>\n{_USER}{_NO_THOUGHT}\n"',
    ),
    "smollm3": Chat(
        SmolLM3Config, SmolLM3ForCausalLM, _SMOLLM3, _IM,
        opened=f'{_META}<|im_end|>\n{_USER}{_NO_THOUGHT}"',
        opened_with_system=f'{_META}Be.<|im_end|>\n{_USER}{_NO_THOUGHT}"',
    ),
    "gemma2": Chat(
        Gemma2Config, Gemma2ForCausalLM, _GEMMA2, _TURN, bos="<bos>", end="<end_of_turn>",
        is_eos=False, opened=_GEMMA_USER, opened_with_system=_GEMMA_BOTH,
    ),
    "gemma3": Chat(
        Gemma3TextConfig, Gemma3ForCausalLM, _GEMMA3, _TURN, bos="<bos>", end="<end_of_turn>",
        opened=_GEMMA_USER, opened_with_system=_GEMMA_BOTH,
    ),
    "phi3": Chat(  # it drops a system message without a word
        Phi3Config, Phi3ForCausalLM, _PHI3, ("<|user|>", "<|assistant|>", "<|end|>"),
        bos="<bos>", end="<|end|>", is_eos=False,
        opened='<|user|>\nSay.\nText:<|end|>\n<|assistant|>\n"',
        opened_with_system='<|user|>\nBe.\n\nSay.\nText:<|end|>\n<|assistant|>\n"',
    ),
}  # fmt: skip


def chat_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes and words with a kind's template and turn tokens."""
    chat = CHATS[kind]
    tokenizer = tiny_tokenizer()
    names = [*chat.tokens, *([chat.bos] if chat.bos else [])]
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    if chat.bos:
        tokenizer.bos_token = chat.bos
        begin = tokenizer.convert_tokens_to_ids(chat.bos)
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{chat.bos} $A", special_tokens=[(chat.bos, begin)]
        )
    tokenizer.chat_template = chat.template
    return tokenizer


def chat_lm(kind: str) -> LM:
    """Return a tiny instruction-tuned model of a kind with random weights."""
    chat, tokenizer = CHATS[kind], chat_tokenizer(kind)
    ends = [0, *([tokenizer.convert_tokens_to_ids(chat.end)] if chat.is_eos else [])]
    torch.manual_seed(0)
    config = chat.config(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, intermediate_size=64, max_position_embeddings=512,
        initializer_range=0.35, eos_token_id=ends, bos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = chat.model(config).eval()
    fingerprint = fingerprint_model(model, tokenizer)
    return LM(f"tiny-{kind}", model.to(choose_device("cpu")), tokenizer, fingerprint)
