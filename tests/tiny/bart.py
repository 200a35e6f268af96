"""A tiny BART that reads the words of `WORDS`, built in code, saved as a folder."""

import random
from pathlib import Path

import torch
from datasets import Dataset, DatasetDict
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

from tests.tiny import WORDS
from tilth.paraphrase.tags import CELLS

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]  # in BART's order


def bart_tokenizer(*added: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words whose texts begin with `<s>` and end with `</s>`.

    Args:
        added: tokens added after the vocabulary, as the published checkpoint has its tags.
    """
    tokenizer = Tokenizer(
        models.WordLevel({word: n for n, word in enumerate([*SPECIAL, *WORDS])}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        unk_token="<unk>", mask_token="<mask>", model_max_length=32,
    )  # fmt: skip
    fast.add_tokens(list(added))
    return fast


def save_bart(folder: Path, *added: str, dropout: float = 0.1, seed: int = 0) -> Path:
    """Save a tiny BART with random weights and its tokenizer."""
    tokenizer = bart_tokenizer(*added)
    torch.manual_seed(seed)
    config = BartConfig(
        vocab_size=len(tokenizer), d_model=32, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64,
        decoder_ffn_dim=64, max_position_embeddings=32, dropout=dropout,
        bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2,
        forced_eos_token_id=2,
    )  # fmt: skip
    BartForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def corpus(train: int = 96, validation: int = 24, *, seed: int = 0) -> DatasetDict:
    """Return pairs whose rewrite is the source's words backwards."""
    rng = random.Random(seed)

    def rows(count: int) -> Dataset:
        found = []
        for _ in range(count):
            words = rng.choices(WORDS[:12], k=rng.randint(4, 7))
            tags = rng.choice(CELLS).tags
            source, rewrite = " ".join(words), " ".join(reversed(words))
            found.append({"text_a": source, "text_b": rewrite, "tags": tags})
        return Dataset.from_list(found)

    return DatasetDict({"train": rows(train), "validation": rows(validation)})
