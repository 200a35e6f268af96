"""Writes a tiny Llama of random weights as a GGUF file; runs where `gguf` and numpy are installed.

Its texts are words in random order that follow from prompt and seed, and are closed by a
quotation mark after some ten words: an output bias (through a dimension of the embedding that no
layer touches) keeps bytes and special tokens away.
"""

import sys

import gguf
import numpy as np

WORDS = ["the", "a", "dog", "cat", "man", "tree", "house", "river"]
WORDS += ["sings", "runs", "falls", "sees", "likes", "red", "old", "small", "today"]
WIDTH, HEADS, LAYERS, FEED_FORWARD, POSITIONS = 64, 4, 2, 128, 512
# The log-odds of a token against a word, through the constant dimension.
MARK, NEVER = -0.5, -30.0


def main(path: str) -> None:
    special = ["<unk>", "<s>", "</s>"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    plain = ['"', "."] + [f"\u2581{word}" for word in WORDS]
    tokens = special + bytes_ + plain
    kinds = [2, 3, 3] + [6] * 256 + [1] * len(plain)  # unknown, control, byte, normal
    bias = np.full(len(tokens), NEVER)
    bias[-len(plain) :] = 0.0
    bias[tokens.index('"')] = MARK

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [-1.0 - n for n in range(len(plain))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)

    rng = np.random.default_rng(0)

    def add(name: str, *shape: int, scale: float) -> None:
        weight = rng.normal(size=shape).astype(np.float32) * scale
        if name.endswith(("attn_output.weight", "ffn_down.weight")):
            weight[0] = 0.0  # the constant dimension
        elif name == "token_embd.weight":
            weight[:, 0] = 8.0
        elif name == "output.weight":
            # After the last norm the constant dimension is about 8 / rms, some 5.
            weight[:, 0] = bias / 5.0
        writer.add_tensor(name, weight)

    add("token_embd.weight", len(tokens), WIDTH, scale=1.0)
    for layer in range(LAYERS):
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", np.ones(WIDTH, np.float32))
        writer.add_tensor(f"blk.{layer}.ffn_norm.weight", np.ones(WIDTH, np.float32))
        for part in ("q", "k", "v", "output"):
            add(f"blk.{layer}.attn_{part}.weight", WIDTH, WIDTH, scale=WIDTH**-0.5)
        for part in ("gate", "up"):
            add(f"blk.{layer}.ffn_{part}.weight", FEED_FORWARD, WIDTH, scale=WIDTH**-0.5)
        add(f"blk.{layer}.ffn_down.weight", WIDTH, FEED_FORWARD, scale=FEED_FORWARD**-0.5)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    add("output.weight", len(tokens), WIDTH, scale=0.15)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
