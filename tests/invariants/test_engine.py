"""What must not change a text: how many rows, which neighbours, memory running out."""

import gc
import weakref
from collections.abc import Iterator
from threading import get_ident
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from tests.tiny import KINDS, tiny_lm
from tests.tiny.jobs import pair_jobs, run_jobs
from tilth.errors import InputError, TilthError
from tilth.generation import engine as engines
from tilth.generation import rows
from tilth.generation.attempts import Job, Outcome, job_key
from tilth.generation.debias import debiased_distribution, sample_indices
from tilth.generation.engine import (
    Engine,
    Vocabulary,
    check_model,
    max_positions,
    uniforms,
)
from tilth.generation.kv_cache import KVCache, PromptCache
from tilth.generation.rows import CopiedRows, SharedRows
from tilth.generation.settings import Sampling
from tilth.generation.step_graphs import StepGraphs, rounded_columns
from tilth.generation.task import load_task
from tilth.models.device import choose_device
from tilth.models.lm import LM

TEXTS = [f"a dog number {n} runs" + " on the red sea" * (n % 5) for n in range(8)]


Outcomes = dict[Job, Outcome]
Texts = dict[tuple[str, str, int], tuple[str, str | None]]


def texts_of(outcomes: Outcomes) -> Texts:
    return {(j.source_id, j.label, j.attempt): (o.text, o.reason) for j, o in outcomes.items()}


def check_same_texts(lm: LM, sampling: Sampling, one: Outcomes, two: Outcomes) -> None:
    """Check that texts are the same, but where rounding decides which token is drawn."""
    texts = texts_of(one), texts_of(two)
    assert texts[0].keys() == texts[1].keys()
    places = dict(zip(texts[0], one, strict=True))
    ties = [job for place, job in places.items() if texts[0][place] != texts[1][place]]
    assert len(ties) <= 1
    for job in ties:
        ids, others = (each[job].drawn[0].tolist() for each in (one, two))  # type: ignore[index]
        step = next(n for n, pair in enumerate(zip(ids, others, strict=False)) if len({*pair}) > 1)
        assert {ids[step], others[step]} <= _drawn_with_noise(lm, sampling, job, ids[:step])


@torch.inference_mode()
def _drawn_with_noise(lm: LM, sampling: Sampling, job: Job, ids: list[int]) -> set[int]:
    """Return the tokens that follow `ids` where logits are 1e-5 higher or lower."""
    given = [lm.tokenizer(one, add_special_tokens=False)["input_ids"] + ids for one in job.prompts]
    logits = torch.stack(
        [lm.model(torch.tensor([one], device=lm.device)).logits[0, -1].cpu() for one in given]
    )
    logits[:, Vocabulary(lm).banned.cpu()] = -torch.inf
    uniform = torch.from_numpy(uniforms(job.key, len(ids) + 1)[-1:])
    noise, found = torch.Generator().manual_seed(0), set()
    for _ in range(50):
        moved = logits + 1e-5 * torch.randn(logits.shape, generator=noise)
        drawable, kept, _ = debiased_distribution(moved, torch.arange(len(given))[None], sampling)
        found.add(int(drawable[0, sample_indices(kept, uniform)[0, 0]]))
    return found


ON_GPU = choose_device("cpu").type != "cpu"  # with TILTH_TEST_DEVICE
UsualRows: Any = CopiedRows if ON_GPU else SharedRows
ROWS = pytest.mark.parametrize("kept", [CopiedRows] if ON_GPU else [SharedRows, CopiedRows])
RECORDED = StepGraphs._recorded
processor_only = pytest.mark.skipif(ON_GPU, reason="a GPU decodes all rows in one thread")


@ROWS
@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_change_texts(kind: str, kept: type, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = tiny_lm(kind)
    monkeypatch.setattr(engines, "SharedRows", kept)
    jobs = list(pair_jobs(TEXTS))
    sampling = Sampling(max_new_tokens=20)
    few, many = (run_jobs(Engine(lm, sampling, rows=count), jobs) for count in (3, 200))
    assert len(few) == len(TEXTS) * 3 * 2
    check_same_texts(lm, sampling, few, many)


@torch.inference_mode()
def test_prompts_need_the_output_layer_for_their_last_tokens_alone() -> None:
    model = tiny_lm("gpt2").model
    taken: list[torch.Tensor] = []
    model.lm_head.register_forward_pre_hook(lambda _, inputs: taken.append(inputs[0]))
    logits = KVCache(model, 3, 9).prefill([[5, 6, 7, 8], [5, 6], [9, 3, 4]])
    assert len(logits) == sum(one.shape[0] * one.shape[1] for one in taken) == 3
    # Of a slice, torch would copy the output weights once for each row.
    assert all(one.is_contiguous() for one in taken)


class Replay:
    """What stands for a graph without a GPU: runs its step anew."""

    def __init__(self, steps: StepGraphs, rows: int, end: int) -> None:
        self.steps, self.rows, self.end = steps, rows, end

    def replay(self) -> None:
        logits = self.steps._cache.step(*self.steps._given[:, : self.rows], self.end)
        self.steps._logits[: self.rows] = logits  # type: ignore[index]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Let the engine repeat steps from graphs; return the shapes that are recorded."""
    found: list[tuple[int, int]] = []
    record = StepGraphs._recorded

    def recording(self: StepGraphs, *shape: int) -> Any:
        found.append(shape)
        return record(self, *shape) if ON_GPU else Replay(self, *shape)

    monkeypatch.setattr(StepGraphs, "_recorded", recording)
    if not ON_GPU:

        def begin(self: CopiedRows, model: Any, rows: int, longest: int, new: int) -> None:
            KVCache.__init__(self, model, rows, rounded_columns(longest + new))
            self._graphs = StepGraphs(self)

        monkeypatch.setattr(CopiedRows, "__init__", begin)
        monkeypatch.setattr(engines, "SharedRows", CopiedRows)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_steps_repeated_from_graphs_give_the_same_texts(
    kind: str, recorded: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, sampling, jobs = tiny_lm(kind), Sampling(max_new_tokens=20), list(pair_jobs(TEXTS))
    graphs = run_jobs(Engine(lm, sampling, rows=24), jobs)
    assert len(recorded) == len(set(recorded)) > 2
    assert all(columns % 32 == 0 for _, columns in recorded)
    monkeypatch.setattr(StepGraphs, "step", lambda self, given, end: self._cache.step(*given, end))
    check_same_texts(lm, sampling, graphs, run_jobs(Engine(lm, sampling, rows=24), jobs))


def test_a_model_whose_steps_cannot_be_recorded(
    llama: LM, recorded: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling, jobs = Sampling(max_new_tokens=20), list(pair_jobs(TEXTS))
    with monkeypatch.context() as patch:
        patch.setattr(StepGraphs, "step", lambda self, given, end: self._cache.step(*given, end))
        plain = run_jobs(Engine(llama, sampling, rows=24), jobs)
    assert not recorded
    tried = Mock(side_effect=RuntimeError("operation not permitted when stream is capturing"))
    monkeypatch.setattr(torch.cuda, "graph", tried)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Mock())
    monkeypatch.setattr(StepGraphs, "_recorded", RECORDED)
    check_same_texts(llama, sampling, plain, run_jobs(Engine(llama, sampling, rows=24), jobs))
    assert tried.call_count == 2  # once for each memory: when the model is checked, and here


@processor_only
@pytest.mark.parametrize("kind", KINDS)
def test_both_kinds_of_rows_give_the_same_texts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, sampling = tiny_lm(kind), Sampling(max_new_tokens=20)
    shared = Engine(lm, sampling, rows=10)
    monkeypatch.setattr(engines, "SharedRows", CopiedRows)
    copied = Engine(tiny_lm(kind), sampling, rows=10)
    one, two = (run_jobs(engine, pair_jobs(TEXTS)) for engine in (shared, copied))
    check_same_texts(lm, sampling, one, two)


@pytest.mark.parametrize("floor", [0.01, 0.2])
def test_the_factors_of_the_drawn_tokens_are_those_of_the_formula(llama: LM, floor: float) -> None:
    sampling = Sampling(decay=40, floor=floor, max_new_tokens=12)
    few = run_jobs(Engine(llama, sampling, rows=3), list(pair_jobs(TEXTS[:3])))
    many = run_jobs(Engine(llama, sampling, rows=90), list(pair_jobs(TEXTS[:3])))
    assert min(one.drawn[1].min() for one in few.values() if one.drawn) < 1
    for job, outcome in few.items():
        assert outcome.drawn is not None
        ids, factors = outcome.drawn
        assert len(ids) == len(factors) == outcome.tokens
        assert many[job].drawn[1] == pytest.approx(factors, abs=1e-4)  # type: ignore[index]
        own, *counters = (_probabilities(llama, prompt, ids) for prompt in job.prompts)
        expected = torch.ones_like(own)
        if counters:
            least = torch.stack(counters).amax(0)
            expected = (40 * (own - least).clamp(max=0)).exp().clamp(min=floor)
        assert factors == pytest.approx(expected.numpy(), abs=1e-3)
        at_floor = (factors <= np.float32(floor)) & (factors < 1)
        assert outcome.floor_share == pytest.approx(at_floor.mean())


def _probabilities(lm: LM, prompt: str, ids: Any) -> torch.Tensor:
    """Return the probability of each drawn token after a prompt, by plain passes."""
    banned = Vocabulary(lm).banned.cpu()
    before = lm.tokenizer(prompt, add_special_tokens=False)["input_ids"]
    given = torch.tensor([[*before, *ids.tolist()]], device=lm.device)
    logits = lm.model(given).logits[0, len(before) - 1 : -1].detach().cpu()
    logits[:, banned] = -torch.inf
    return logits.softmax(-1)[torch.arange(len(ids)), torch.from_numpy(ids)]


def test_neighbours_and_order_do_not_change_texts(llama: LM) -> None:
    engine = Engine(llama, Sampling(), rows=24)
    alone: dict[Any, Any] = {}
    for text in TEXTS[:4]:
        alone.update(texts_of(run_jobs(engine, pair_jobs([text]))))
    together = texts_of(run_jobs(engine, pair_jobs(reversed(TEXTS))))
    assert alone.items() <= together.items()


@pytest.fixture(scope="module")
def usual(llama: LM) -> Texts:
    """Return the texts of the usual settings."""
    return texts_of(run_jobs(Engine(llama, Sampling(), rows=40), pair_jobs(TEXTS)))


def test_shared_heads_do_not_change_texts(llama: LM, usual: Texts) -> None:
    heads = [label.head for label in load_task("sts-x2").labels]
    engine = Engine(llama, Sampling(), rows=40, heads=heads)
    assert texts_of(run_jobs(engine, pair_jobs(TEXTS))) == usual


def test_seed_and_try_change_texts(llama: LM) -> None:
    engine = Engine(llama, Sampling(), rows=40)
    one = texts_of(run_jobs(engine, pair_jobs(TEXTS, tries=2, seed=0)))
    two = texts_of(run_jobs(engine, pair_jobs(TEXTS, tries=2, seed=1)))
    assert sum(one[key] != two[key] for key in one) > len(one) / 2
    first = {key: text for key, text in one.items() if key[2] == 0}
    assert sum(one[a, b, 1] != first[a, b, 0] for a, b, _ in first) > len(first) / 2


def test_debiasing_changes_the_texts_of_labels_with_counter_labels_only(
    llama: LM, usual: Texts
) -> None:
    off = texts_of(run_jobs(Engine(llama, Sampling(decay=0), rows=40), pair_jobs(TEXTS)))
    changed = {key[1] for key in usual if usual[key] != off[key]}
    assert changed == {"0.5", "0"}


def test_next_tries_are_run_and_equal_the_same_tries_asked_for_at_once(
    llama: LM, usual: Texts
) -> None:
    later = {(j.source_id, j.label): j for j in pair_jobs(TEXTS, tries=2) if j.attempt == 1}
    seen: dict[Job, Outcome] = {}

    def then(outcome: Outcome) -> Job | None:
        seen[outcome.job] = outcome
        return later.pop((outcome.job.source_id, outcome.job.label), None)

    Engine(llama, Sampling(), rows=6).run(pair_jobs(TEXTS, tries=1), then)
    assert not later
    assert texts_of(seen) == usual


def test_out_of_memory_halves_the_rows_and_loses_nothing(
    llama: LM, usual: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = UsualRows.decode
    calls = 0

    def scarce(self: Any, tokens: Any, positions: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if len(tokens) > 17 and calls > 20:
            raise torch.OutOfMemoryError("tried to allocate")
        return decode(self, tokens, positions)

    monkeypatch.setattr(UsualRows, "decode", scarce)
    engine = Engine(llama, Sampling(), rows=40)
    assert texts_of(run_jobs(engine, pair_jobs(TEXTS))) == usual
    assert engine.rows < 40


@pytest.fixture
def three_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let torch use three threads, and each core begin with few rows."""
    monkeypatch.setattr(engines, "_FEWEST_ROWS", 6)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    assert torch.get_num_threads() == 3
    torch.set_num_threads(threads)


@processor_only
@pytest.mark.usefixtures("three_cores")
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_cores_that_decode_some_items_each_change_no_text(kind: str) -> None:
    lm, sampling = tiny_lm(kind), Sampling(max_new_tokens=20)
    later = {(j.source_id, j.label): j for j in pair_jobs(TEXTS, tries=2) if j.attempt == 1}
    seen: dict[Job, Outcome] = {}
    threads = set()

    def then(outcome: Outcome) -> Job | None:
        seen[outcome.job] = outcome
        threads.add(get_ident())
        return later.pop((outcome.job.source_id, outcome.job.label), None)

    Engine(lm, sampling, rows=18).run(pair_jobs(TEXTS, tries=1), then)
    assert len(threads) == 3
    jobs = list(pair_jobs(TEXTS, tries=2))
    one = run_jobs(Engine(lm, sampling, rows=6), jobs)  # too few rows for several cores
    check_same_texts(lm, sampling, {job: seen[job] for job in one}, one)


@processor_only
@pytest.mark.usefixtures("three_cores")
def test_an_error_on_one_core_ends_all(llama: LM) -> None:
    answered = []

    def then(outcome: Outcome) -> None:
        answered.append(outcome)
        if len(answered) == 5:
            raise OSError("disk full")
        assert len(answered) < 5

    with pytest.raises(OSError, match="disk full"):
        Engine(llama, Sampling(), rows=18).run(pair_jobs(TEXTS), then)
    assert len(answered) == 5


@processor_only
@pytest.mark.usefixtures("three_cores")
def test_out_of_memory_on_one_core_loses_nothing(
    llama: LM, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = list(pair_jobs(TEXTS))
    expected = texts_of(run_jobs(Engine(llama, Sampling(), rows=18), jobs))
    decode = UsualRows.decode
    scarce = set[int]()

    def decode_once(self: Any, tokens: Any, positions: Any) -> torch.Tensor:
        if not scarce:
            scarce.add(get_ident())
            raise torch.OutOfMemoryError("tried to allocate")
        return decode(self, tokens, positions)

    monkeypatch.setattr(UsualRows, "decode", decode_once)
    assert texts_of(run_jobs(Engine(llama, Sampling(), rows=18), jobs)) == expected
    assert scarce


@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (
            torch.OutOfMemoryError("tried"),
            TilthError,
            r"out of memory with 3 rows on (cpu|cuda:0): use a sm",
        ),
        (RuntimeError("shape mismatch"), RuntimeError, "shape mismatch"),  # is not about memory
    ],
)
def test_what_a_step_raises(
    llama: LM, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception], said: str
) -> None:
    engine = Engine(llama, Sampling(), rows=40)
    monkeypatch.setattr(UsualRows, "decode", Mock(side_effect=error))
    with pytest.raises(raised, match=said):
        run_jobs(engine, pair_jobs(TEXTS))


def test_a_prompt_longer_than_the_positions_is_dropped_alone(llama: LM) -> None:
    jobs = list(pair_jobs(["the dog sleeps", "the " * 300, "rain"]))
    outcomes = run_jobs(Engine(llama, Sampling(), rows=40), jobs)
    reasons = {j.item: {o.reason for i, o in outcomes.items() if i.item == j.item} for j in jobs}
    assert reasons[1] == {"prompt-too-long"}
    assert "prompt-too-long" not in reasons[0] | reasons[2]


def test_a_counter_prompt_of_a_job_that_is_too_long_is_kept_for_the_next(llama: LM) -> None:
    long, short = "the " * 250, "the dog sleeps"
    jobs = [
        Job(0, "s", name, 0, prompts, job_key(0, "s", name, 0))
        for name, prompts in (("1", (long, short)), ("0", (short,)))
    ]
    outcomes = run_jobs(Engine(llama, Sampling(), rows=40), jobs)
    assert outcomes[jobs[0]].reason == "prompt-too-long"
    assert outcomes[jobs[1]].reason != "prompt-too-long"


def test_logits_that_are_no_numbers_drop_the_try() -> None:
    lm = tiny_lm("llama")
    engine = Engine(lm, Sampling(), rows=40)
    number = lm.tokenizer.convert_tokens_to_ids("Ġsea")
    with torch.no_grad():
        lm.model.get_input_embeddings().weight[number] = torch.nan
    outcomes = run_jobs(engine, pair_jobs(["a dog", "the red sea", "the rain"]))
    assert {o.reason for j, o in outcomes.items() if j.item == 1} == {"not-a-number"}
    good = [o for j, o in outcomes.items() if j.item != 1]
    # a text may also meet the broken token later, by drawing it
    assert any(outcome.reason != "not-a-number" for outcome in good)


def test_special_tokens_are_never_drawn() -> None:
    lm, task = tiny_lm("llama"), load_task("sts-x2")
    sea = lm.tokenizer.convert_tokens_to_ids("Ġsea")
    head = lm.model.lm_head
    head.bias = torch.nn.Parameter(torch.zeros(head.out_features, device=lm.device))
    head.bias.data[0] = 30.0  # by far the likeliest: the end of sequence
    head.bias.data[sea] = 25.0
    jobs = [
        Job(n, "x", "1", 0, task.prompts(task.labels[0], "rain"), job_key(n, "x", "1", 0))
        for n in range(20)
    ]
    with torch.inference_mode():
        given = lm.tokenizer(jobs[0].prompts[0], return_tensors="pt").to(lm.device)
        logits = lm.model(**given).logits[0, -1]
    assert int(logits.argmax()) == 0
    outcomes = run_jobs(Engine(lm, Sampling(top_k=0, top_p=1), rows=64), jobs)
    assert not any("<eos>" in outcome.text for outcome in outcomes.values())
    assert any(" sea" in outcome.text for outcome in outcomes.values())


def test_end_ids_outside_the_vocabulary_are_passed_over() -> None:
    lm = tiny_lm("gpt2")
    lm.model.generation_config.eos_token_id = [0, len(lm.tokenizer), 50256, -1]
    assert Vocabulary(lm).banned.tolist() == [0]


def test_prefixes_are_kept_for_one_call_alone(llama: LM) -> None:
    heads = [label.head for label in load_task("sts-x2").labels]
    engine = Engine(llama, Sampling(max_new_tokens=2), rows=40, heads=heads)
    kept = []
    for start in range(3):
        texts = [f"{'red sea '[: 4 * start]}dog {number}" for number in range(3)]
        run_jobs(engine, pair_jobs(texts, tries=1))
        kept.append(len(engine._prompts._prefixes))
    assert kept == [3, 3, 3]


def test_a_model_without_keys_and_values_is_refused(llama: LM) -> None:
    from transformers import MambaConfig, MambaForCausalLM

    shape = {"hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}
    mamba = MambaForCausalLM(MambaConfig(vocab_size=len(llama.tokenizer), **shape)).eval()
    lm = LM("mamba", mamba, llama.tokenizer, "x")
    with pytest.raises(InputError, match=r"'mamba' \(mamba\) cannot be decoded in rows"):
        Engine(lm, Sampling())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_accepted_in_both_precisions(kind: str, dtype: torch.dtype) -> None:
    for seed in range(3):
        lm = tiny_lm(kind, seed=seed)
        lm.model.to(dtype)
        assert check_model(lm) is UsualRows


@processor_only
def test_attention_that_the_kernel_lacks_is_torchs(
    llama: LM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_UNKNOWN", ("position_ids",))  # models pass it on
    assert check_model(llama) is CopiedRows


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_model_that_reads_ahead_is_refused(dtype: torch.dtype) -> None:
    lm = tiny_lm("bert")
    lm.model.config.is_decoder = False
    ahead = type(lm.model)(lm.model.config).eval().to(dtype)
    with pytest.raises(InputError, match=r"\(bert\) cannot be decoded in rows"):
        Engine(LM("ahead", ahead, lm.tokenizer, "x"), Sampling())


def gpt_neo(window: int, tokenizer: Any) -> LM:
    """Return a model of a global and a local layer."""
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    torch.manual_seed(0)
    config = GPTNeoConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_layers=2, num_heads=4, window_size=window,
        max_position_embeddings=256, attention_types=[[["global", "local"], 1]],
        initializer_range=0.35, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return LM("neo", GPTNeoForCausalLM(config).eval(), tokenizer, "x")


@pytest.mark.parametrize("name", ["window_size", "attention_chunk_size"])
def test_local_attention_is_used_within_its_window_alone(llama: LM, name: str) -> None:
    lm = gpt_neo(80, llama.tokenizer)
    lm.model.config.window_size = 0
    setattr(lm.model.config, name, 80)
    assert max_positions(lm) == 80
    jobs = list(pair_jobs(["dog", "the sea " * 30], tries=1))
    outcomes = run_jobs(Engine(lm, Sampling(max_new_tokens=4), rows=12), jobs)
    long = {outcome.reason == "prompt-too-long": job.item for job, outcome in outcomes.items()}
    assert long == {True: 1, False: 0}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_local_attention_that_does_not_say_so_is_refused(llama: LM, dtype: torch.dtype) -> None:
    lm = gpt_neo(24, llama.tokenizer)
    lm.model.to(dtype)
    lm.model.config.window_size = 0
    with pytest.raises(InputError, match=r"\(gpt_neo\) cannot be decoded in rows"):
        check_model(lm)


@ROWS
def test_a_row_that_gives_no_number_harms_no_other(
    llama: LM, kept: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "SharedRows", kept)
    engine = Engine(llama, Sampling(), rows=12)
    jobs = list(pair_jobs([f"a dog number {n} runs" for n in range(10, 18)]))
    clean = texts_of(run_jobs(engine, jobs))
    steps = 0
    decode = kept.decode

    def once_broken(self: Any, tokens: Any, positions: Any) -> Any:
        nonlocal steps
        logits = decode(self, tokens, positions)
        steps += 1
        if steps == 5:
            logits[0] = torch.nan
            for layer in self.layers:
                layer.keys[0] = layer.values[0] = torch.nan
        return logits

    monkeypatch.setattr(kept, "decode", once_broken)
    broken = texts_of(run_jobs(engine, jobs))
    different = {key: broken[key] for key in clean if broken[key] != clean[key]}
    assert steps >= 5
    assert [reason for _, reason in different.values()] == ["not-a-number"]


def test_after_an_out_of_memory_the_failed_rows_are_freed_before_others_are_made(
    llama: LM, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    alive: list[bool] = []

    class Failing(UsualRows):
        def decode(self, *arguments: Any) -> Any:
            if not made:
                made.append(weakref.ref(self))
                raise torch.OutOfMemoryError
            return super().decode(*arguments)

    drop = PromptCache.drop_memory

    def looked(self: PromptCache) -> None:
        alive.append(made[0]() is not None)
        drop(self)

    engine = Engine(llama, Sampling(), rows=12)
    engine._rows_type = Failing
    monkeypatch.setattr(PromptCache, "drop_memory", looked)
    gc.disable()
    try:
        run_jobs(engine, pair_jobs(TEXTS[:2]))
    finally:
        gc.enable()
    assert alive == [False]
