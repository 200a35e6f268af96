"""Tiny models of every supported kind, built in code: random weights, own vocabulary."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertLMHeadModel,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tilth.models.device import choose_device
from tilth.models.lm import LM
from tilth.models.pretrained import fingerprint_model

if TYPE_CHECKING:
    import pytest
    from sentence_transformers import SentenceTransformer

    from tilth.bank import Bank

# Few pieces, so that a random model closes its quotation mark now and then.
_PIECES = ["the", "a", "man", "dog", "rain", "runs", "sleeps", "reads", "sea", "red", "and", "on"]
KINDS = ("gpt2", "llama", "qwen3", "opt", "bert")


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer: every byte, some words with and without a space, `."`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [prefix + word for word in _PIECES for prefix in ("", "Ġ")]
    pieces = ["<eos>", *alphabet, *words, '."', '",']
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    merges: list[tuple[str, str]] = []
    for target in [*words, '."', '",']:
        parts = list(target)
        while len(parts) > 1:
            merge = (parts[0], parts[1])
            joined = "".join(merge)
            if joined not in vocabulary:
                vocabulary[joined] = len(vocabulary)
            if merge not in merges:
                merges.append(merge)
            parts = [joined, *parts[2:]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>", bos_token="<eos>"
    )


def tiny_model(kind: str, vocabulary: int, *, seed: int = 0, positions: int = 256) -> Any:
    """Return a two-layer model of a kind with random weights that differ from row to row."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": positions,
        "initializer_range": 0.35,
    }
    end = {"eos_token_id": 0, "bos_token_id": 0, "pad_token_id": 0}
    if kind == "gpt2":
        config = GPT2Config(
            vocab_size=vocabulary, n_embd=32, n_layer=2, n_head=4, n_positions=positions,
            initializer_range=0.35, **end,
        )  # fmt: skip
        model: Any = GPT2LMHeadModel(config)
    elif kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**shape, **end, num_key_value_heads=2))
    elif kind == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**shape, **end, num_key_value_heads=2, head_dim=16))
    elif kind == "opt":
        del shape["initializer_range"], shape["intermediate_size"]
        model = OPTForCausalLM(
            OPTConfig(**shape, **end, ffn_dim=64, word_embed_proj_dim=32, init_std=0.35)
        )
    elif kind == "bert":
        model = BertLMHeadModel(BertConfig(**shape, **end, is_decoder=True))
    else:
        raise ValueError(kind)
    return model.eval()


def tiny_lm(kind: str = "gpt2", *, seed: int = 0, positions: int = 256) -> LM:
    """Return a tiny loaded model of a kind: gpt2, llama, qwen3, opt or bert."""
    tokenizer = tiny_tokenizer()
    model = tiny_model(kind, len(tokenizer), seed=seed, positions=positions)
    fingerprint = fingerprint_model(model, tokenizer)
    return LM(f"tiny-{kind}", model.to(choose_device("cpu")), tokenizer, fingerprint)


def word_tokenizer(known: Sequence[str] | None = None) -> PreTrainedTokenizerFast:
    """Return a lower-casing tokenizer of whole words, by default `WORDS`, with [CLS] and [SEP]."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(known or WORDS)]
    tokenizer = Tokenizer(
        models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]", model_max_length=32,
    )  # fmt: skip


WORDS = [
    "a", "the", "man", "woman", "dog", "cat", "bird", "sea", "river", "boat", "runs", "sleeps",
    "reads", "sings", "swims", "flies", "eats", "sees", "red", "old", "small", "green", "big",
    "slow", "fast", "on", "in", "under", "near", "with", "and", "but", "not", "two", "three",
    "many", "rain", "sun",
]  # fmt: skip


BERT_SHAPE: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 32, "pad_token_id": 0,
}  # fmt: skip


def save_model(folder: Path, model: Any, tokenizer: Any = None) -> Path:
    """Save a model and its tokenizer, by default `word_tokenizer()`; or a loaded model's two."""
    if not hasattr(model, "save_pretrained"):
        model, tokenizer = model.model, model.tokenizer
    model.save_pretrained(folder)
    (tokenizer or word_tokenizer()).save_pretrained(folder)
    return folder


def save_encoder(folder: Path, *, seed: int = 0) -> Path:
    """Save a tiny BERT as a plain transformers folder, without sentence-transformers' files."""
    torch.manual_seed(seed)
    return save_model(folder, BertModel(BertConfig(vocab_size=len(word_tokenizer()), **BERT_SHAPE)))


def graded_pairs(count: int, *, seed: int = 0) -> dict[str, list[Any]]:
    """Return pairs of word salads: the same words (0.9), half of them (0.5), others (0.1)."""
    rng = random.Random(seed)
    rows: dict[str, list[Any]] = {"text_a": [], "text_b": [], "label": []}
    for number in range(count):
        first = rng.sample(WORDS, rng.randint(4, 9))
        others = [word for word in WORDS if word not in first]
        label = (0.9, 0.5, 0.1)[number % 3]
        kept = {0.9: len(first), 0.5: len(first) // 2, 0.1: 0}[label]
        second = first[:kept] + rng.sample(others, len(first) - kept)
        rng.shuffle(second)
        for name, value in zip(rows, (" ".join(first), " ".join(second), label), strict=True):
            rows[name].append(value)
    return rows


def tiny_static(
    *, dimension: int = 16, seed: int = 0, words: Sequence[str] | None = None
) -> SentenceTransformer:
    """Return a static encoder of words, by default `WORDS`; others have the zero vector."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tokenizer = word_tokenizer(words)._tokenizer
    rows = np.random.default_rng(seed).normal(size=(tokenizer.get_vocab_size(), dimension))
    rows[:5] = 0  # [UNK] and its like
    module = StaticEmbedding(tokenizer, embedding_weights=rows.astype(np.float32))
    return SentenceTransformer(modules=[module], device="cpu")


def salads(count: int, *, seed: int = 0) -> list[str]:
    """Return different sentences of words in any order, few of them near duplicates."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(rng.choices(WORDS, k=rng.randint(6, 12))).capitalize() + "."] = None
    return list(found)


def write_lines(path: Path, texts: Sequence[str]) -> Path:
    """Write texts, a line each."""
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def put(path: Path, content: str | bytes) -> Path:
    """Write a file, compressed where its name ends in .gz."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]] | Mapping[str, Sequence[Any]]) -> Path:
    """Write rows, or columns, as JSON lines."""
    if isinstance(rows, Mapping):
        rows = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_lines(path, [json.dumps(row) for row in rows])


def write_vectors(path: Path, *, dimension: int = 8) -> Path:
    """Write random vectors of `WORDS` as text."""
    rng = np.random.default_rng(0)
    vectors = [" ".join(f"{x:.3f}" for x in rng.normal(size=dimension)) for _ in WORDS]
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_lines(path, [f"{word} {row}" for word, row in zip(WORDS, vectors, strict=True)])


def read_json(path: Path) -> Any:
    """Return what a JSON file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def tiny_bank(folder: Path, texts: Sequence[str], **options: Any) -> Bank:
    """Build a bank of texts in `folder`/bank, by default with a tiny static encoder."""
    from tilth.bank import Bank

    folder.mkdir(parents=True, exist_ok=True)
    source = write_lines(folder / "raw.txt", texts)
    options = {"encoder": tiny_static(), "workers": 1, "quiet": True, **options}
    return Bank.build(folder / "bank", [source], **options)


def small_parts(patch: pytest.MonkeyPatch, size: int = 8_000) -> None:
    """Let banks be made of parts, and so shards, of a few bytes of text."""
    from tilth.bank.settings import BankSettings

    patch.setattr(BankSettings, "part_bytes", size)


def small_ranges(patch: pytest.MonkeyPatch) -> None:
    """Let the duplicates of a few hundred sentences be found by several ranges and groups."""
    patch.setattr("tilth.bank.ingest.deduplicate._GROUP_ROWS", 400)
    patch.setattr("tilth.bank.ingest.deduplicate._RANGE_ROWS", 300)


def paraphrases(count: int, *, seed: int = 0) -> Dataset:
    """Return texts beside their words' partners, which are other words, in another order."""
    rng = random.Random(seed)
    half = len(WORDS) // 2
    rows: dict[str, list[str]] = {"en": [], "de": []}
    for _ in range(count):
        places = rng.sample(range(half), rng.randint(3, 6))
        rows["en"].append(" ".join(WORDS[place] for place in places))
        rng.shuffle(places)
        rows["de"].append(" ".join(WORDS[half + place] for place in places))
    return Dataset.from_dict(rows)
