"""Tiny encoder-decoders of several families, with random weights and a tokenizer made here."""

import json
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    FSMTConfig,
    FSMTForConditionalGeneration,
    FSMTTokenizer,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from tests.tiny import WORDS
from tilth.models.device import choose_device
from tilth.models.lm import Seq2Seq

FAMILIES = ("bart", "marian", "t5")
MARKS = [">>de<<", ">>en<<", "<SIM95>", "<BLEU0_5>"]
POSITIONS = 64


def writer_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words that closes a text with `</s>`."""
    entries = ["<pad>", "<s>", "</s>", "<unk>", *MARKS, *WORDS, "."]
    tokenizer = Tokenizer(
        models.WordLevel({word: n for n, word in enumerate(entries)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
        unk_token="<unk>", additional_special_tokens=MARKS, model_max_length=POSITIONS,
    )  # fmt: skip


def writer_model(family: str, *, seed: int = 0) -> Any:
    """Return a model of a family: bart, marian or t5."""
    torch.manual_seed(seed)
    tokens = {"pad_token_id": 0, "eos_token_id": 2}
    if family == "t5":
        config = T5Config(
            vocab_size=len(writer_tokenizer()), d_model=32, d_kv=8, d_ff=64, num_layers=2,
            num_heads=4, decoder_start_token_id=0, **tokens,
        )  # fmt: skip
        model: Any = T5ForConditionalGeneration(config)
    else:
        shape: dict[str, Any] = {
            "vocab_size": len(writer_tokenizer()), "d_model": 32, "encoder_layers": 2,
            "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": POSITIONS,
            "init_std": 0.35, "forced_eos_token_id": 2, "bos_token_id": 1, **tokens,
        }  # fmt: skip
        if family == "bart":
            model = BartForConditionalGeneration(BartConfig(**shape, decoder_start_token_id=1))
        else:
            model = MarianMTModel(MarianConfig(**shape, decoder_start_token_id=0))
    return model.eval()


def writer(family: str = "bart", *, seed: int = 0, prefix: str = "") -> Seq2Seq:
    """Return a loaded tiny encoder-decoder."""
    place = choose_device("cpu")
    model = writer_model(family, seed=seed).to(place)
    return Seq2Seq(f"tiny-{family}", model, writer_tokenizer(), place, "float32", prefix)


def save_fsmt(folder: Path, *, seed: int) -> Path:
    """Save a translator of the kind of facebook/wmt19-en-de, of letters; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = [*ascii_lowercase, ".", "'"]
    entries = ["<s>", "<pad>", "</s>", "<unk>", *letters, *(f"{one}</w>" for one in letters)]
    files = {side: folder / f"vocab-{side}.json" for side in ("src", "tgt")}
    for file in files.values():
        file.write_text(json.dumps({entry: place for place, entry in enumerate(entries)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    FSMTTokenizer(
        langs=["en", "de"], src_vocab_file=str(files["src"]), tgt_vocab_file=str(files["tgt"]),
        merges_file=str(folder / "merges.txt"),
    ).save_pretrained(folder)  # fmt: skip
    torch.manual_seed(seed)
    sizes = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))
    }
    config = FSMTConfig(
        langs=["en", "de"], src_vocab_size=len(entries), tgt_vocab_size=len(entries), d_model=16,
        max_position_embeddings=POSITIONS, **sizes,
    )  # fmt: skip
    FSMTForConditionalGeneration(config).save_pretrained(folder)
    return folder
