"""tilth's engine against DINO's original algorithm: outputs kept per second, in one process.

    python benchmarks/generate.py                     # the starter LM
    python benchmarks/generate.py --model gpt2-shape  # GPT-2 small's shape, random weights

On a GPU, the paper's workload (two texts for each of three labels) on the shape of its model:

    python benchmarks/generate.py --model gpt2-xl-shape --inputs 10500 --part 256 --rounds 1

Both run the task sts-x2 on the same model and inputs, in turn, several rounds; the ratio of each
round is printed and their median. The random model's vocabulary holds quotation marks in such a
share of its tokens that its texts close about as often as the starter's.
"""

from __future__ import annotations

import copy
import resource
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from inputs import joined_sentences, script_parser
from original import OriginalDino
from tilth.generation.attempts import Attempts, items_from_inputs
from tilth.generation.engine import Engine, choose_rows
from tilth.generation.kv_cache import KVCache, bytes_per_token
from tilth.generation.rows import CopiedRows, SharedRows
from tilth.generation.settings import GenerateSettings
from tilth.generation.task import Task, load_task
from tilth.models.kernel_arrays import KEYS, OWN_TOKENS, TOKENS
from tilth.models.lm import LM, load_lm
from tilth.runs import Progress
from tilth.workflows.quickstart import quickstart_sentences

CLOSING_SHARE = 1 / 14  # chance that a token ends the text
XL: dict[str, Any] = {"n_embd": 1600, "n_layer": 48, "n_head": 25}


def clock() -> float:
    """Return the time once a GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def gpt2_shape(**shape: Any) -> LM:
    """Return GPT-2 small's shape, or another, with random weights and texts that close."""
    config = GPT2Config(tie_word_embeddings=False, **shape)
    trainer = trainers.BpeTrainer(
        vocab_size=1500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    task = load_task("sts-x2")
    tokenizer.train_from_iterator(
        quickstart_sentences() + [label.instruction for label in task.labels], trainer
    )
    every = round(1 / CLOSING_SHARE)
    missing = config.vocab_size - tokenizer.get_vocab_size() - 1
    tokenizer.add_tokens([f' z{n}"' if n % every == 0 else f" z{n}" for n in range(missing)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")  # type: ignore[no-untyped-call]
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model: Any = GPT2LMHeadModel(config)
    return LM("gpt2-shape", model.eval(), fast, "random")


def ours(engine: Engine, task: Task, texts: list[str], part: int = 0) -> tuple[int, int, float]:
    """Return outputs kept, tries and seconds of our engine, for so many inputs at once."""
    reasons: list[str | None] = []
    start = clock()
    for first in range(0, len(texts), part or len(texts)):
        some = texts[first:][: part or len(texts)]
        items = items_from_inputs(task, some, some)
        tries = Attempts(task, GenerateSettings(), items, Progress(len(items), quiet=True))
        engine.run(tries.first_jobs(), tries.next_job)
        reasons += [outcome.reason for _, outcome in tries.outcomes()]
    return reasons.count(None), len(reasons), clock() - start


def theirs(peer: OriginalDino, task: Task, texts: list[str]) -> tuple[int, float]:
    """Return outputs kept and seconds of the original algorithm."""
    start = clock()
    rows = peer.generate(task, texts)
    return len(rows), clock() - start


def limit(engine: Engine, done: Counter[str]) -> float:
    """Return the seconds that the same matrix products and bytes take alone.

    Products: those of all tokens of rows and prompts, at the engine's number of rows. Bytes: of the
    keys and values that each step must read, a prompt's once a step, and of the logits, written and
    read; at the speed at which one thread, or the GPU, reads memory.
    """
    model: Any = engine.lm.model
    head, place = model.get_output_embeddings(), engine.lm.device
    seconds = {False: 0.0, True: 0.0}  # of a row, by whether it is the output projection
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if type(module).__name__ in ("Linear", "Conv1D") and weight is not None:
            matrix = weight if type(module).__name__ == "Conv1D" else weight.T
            values = torch.randn(engine.rows, len(matrix), dtype=weight.dtype, device=place)
            out = values @ matrix
            times = []
            for _ in range(5):
                start = clock()
                torch.mm(values, matrix, out=out)
                times.append(clock() - start)
            seconds[module is head] += statistics.median(times) / engine.rows
    large = torch.randn(1 << 26, device=place)
    large.sum()
    start = clock()
    large.sum()
    rate = large.nbytes / (clock() - start)
    tokens = done["rows"] + done["prompts"]
    return tokens * seconds[False] + done["logits"] * seconds[True] + done["bytes"] / rate


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count the tokens that are run, the rows of logits and the bytes that must be read."""
    done = Counter[str]()
    forward, shared, copied = KVCache._forward, SharedRows.decode, CopiedRows.decode

    def run_prompts(cache: KVCache, ids: Any, *given: Any, **more: Any) -> Any:
        logits = forward(cache, ids, *given, **more)
        if not isinstance(cache, CopiedRows):
            done["prompts"] += ids.numel()
            done["logits"] += logits.shape[0] * logits.shape[1]
        return logits

    def count(cache: KVCache, logits: Any, kept: int) -> Any:
        done["bytes"] += kept * bytes_per_token(cache.model) + 2 * logits.nbytes
        done["steps"] += 1
        done["rows"] += len(logits)
        done["logits"] += len(logits)
        return logits

    def run_shared(cache: SharedRows, tokens: Any, positions: Any) -> Any:
        logits = shared(cache, tokens, positions)
        table = cache._table[0, : len(tokens)]
        _, first = np.unique(table[:, KEYS], return_index=True)
        return count(cache, logits, int(table[:, OWN_TOKENS].sum() + table[first, TOKENS].sum()))

    def run_copied(cache: CopiedRows, tokens: Any, positions: Any) -> Any:
        return count(cache, copied(cache, tokens, positions), int(positions.sum() + len(tokens)))

    with (
        patch.object(KVCache, "_forward", run_prompts),
        patch.object(SharedRows, "decode", run_shared),
        patch.object(CopiedRows, "decode", run_copied),
    ):
        yield done


@torch.inference_mode()
def main() -> None:
    """Run both in turn and print the ratios."""
    parser = script_parser(__doc__)
    parser.add_argument(
        "--model", default="starter", help="starter, gpt2-shape, gpt2-xl-shape, a folder"
    )
    parser.add_argument("--inputs", type=int, default=0, help="0: 256, or 48 for gpt2-shape")
    parser.add_argument("--peer-inputs", type=int, default=0, help="0: 8, or 3 for gpt2-shape")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--rows", type=int, default=0, help="0: chosen as in a run")
    parser.add_argument("--part", type=int, default=0, help="inputs decoded at once; 0: all")
    parser.add_argument("--cpu-time", action="store_true", help="count processor seconds")
    args = parser.parse_args()
    if args.cpu_time:
        global clock
        clock = time.process_time
    big = args.model.endswith("-shape")
    count, few = args.inputs or (48 if big else 256), args.peer_inputs or (3 if big else 8)

    task = load_task("sts-x2")
    shape = XL if args.model == "gpt2-xl-shape" else {}
    base = gpt2_shape(**shape) if big else load_lm(args.model, precision="float32")
    assert isinstance(base, LM), "a server's models cannot be given to the original"
    texts = joined_sentences(count)
    peer = OriginalDino(base.model, base.tokenizer)
    precisions = ["bfloat16", "float32"] if args.precision == "auto" else [args.precision]
    engines = {}
    for precision in precisions:
        model: Any = base.model
        if precision != "float32":
            model = copy.deepcopy(model).to(getattr(torch, precision))
        lm = replace(base, model=model)
        rows = args.rows or choose_rows(lm, prompt_tokens=64, max_new_tokens=40)
        heads = [label.head for label in task.labels]
        engines[precision] = Engine(lm, GenerateSettings(), heads=heads, rows=rows)
    print(f"{args.model}: {len(texts)} inputs for tilth, {few} for the original, per round")
    theirs(peer, task, texts[:1])
    for engine in engines.values():
        ours(engine, task, texts[:1], args.part)
    ratios: dict[str, list[float]] = {name: [] for name in engines}
    for number in range(args.rounds):
        mine = texts[number * few % len(texts) :][:few]
        kept, seconds = theirs(peer, task, mine)
        rate = kept / seconds
        print(f"round {number + 1}: original {rate:.2f} outputs/s ({kept} in {seconds:.1f} s)")
        for name, engine in engines.items():
            with counting() as done:
                kept, tries, seconds = ours(engine, task, texts, args.part)
            ratios[name].append(kept / seconds / rate)
            share = limit(engine, done) / seconds
            print(
                f"         tilth {name:8} {kept / seconds:.1f} outputs/s "
                f"({kept} of {tries} tries in {seconds:.1f} s): {ratios[name][-1]:.1f}x; "
                f"{done['rows'] / seconds:.0f} row tokens/s and {done['prompts'] / seconds:.0f} of "
                f"prompts, {share:.0%} of the limit (matrix products and memory) at "
                f"{engine.rows} rows, {done['steps']} steps"
            )
    for name, values in ratios.items():
        print(f"median ratio, {name}: {statistics.median(values):.1f}x")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
