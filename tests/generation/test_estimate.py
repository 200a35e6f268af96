import pytest

from tests.tiny import tiny_lm
from tilth.generation.estimate import estimate_run
from tilth.generation.generate import GenerateRequest
from tilth.generation.settings import GenerateSettings
from tilth.generation.task import load_task
from tilth.models.lm import LM


def request(lm: LM, count: int, **more: int) -> GenerateRequest:
    texts = [f"the dog number {n} runs" for n in range(count)]
    return GenerateRequest(
        load_task("sts-x2"), lm, GenerateSettings(max_new_tokens=8, **more), inputs=texts
    )


def test_a_plan_grows_with_the_inputs_and_the_texts_wanted(llama: LM) -> None:
    small, large = estimate_run(request(llama, 40)), estimate_run(request(llama, 4000))
    assert small.items == 40
    assert small.trial_items in (20, 40)  # more where the first took no time
    assert large.items == 4000
    assert large.outputs > 50 * small.outputs
    assert large.tokens > 50 * small.tokens
    assert large.disk_bytes > 50 * small.disk_bytes
    assert large.seconds > small.seconds > 0
    more = estimate_run(request(llama, 40, per_input=4))
    assert more.tries > small.tries
    assert more.outputs > small.outputs


def test_a_plan_counts_what_a_whole_run_makes(llama: LM) -> None:
    """With no more inputs than a trial takes, the plan is what the run does."""
    from tilth import generate

    few = request(llama, 12)
    plan = estimate_run(few)
    rows = generate(few.task, llama, inputs=few.inputs, max_new_tokens=8)
    assert plan.outputs == len(rows)
    assert plan.requests is None
    assert set(plan.kept) == {"1", "0.5", "0"}


def test_the_trial_is_spread_over_the_inputs(llama: LM) -> None:
    """Sorted inputs: the first twenty alone would all be too long, and nothing kept."""
    texts = ["the sea " * 300 + str(n) for n in range(50)] + [f"rain {n}" for n in range(150)]
    plan = estimate_run(
        GenerateRequest(load_task("sts-x2"), llama, GenerateSettings(), inputs=texts)
    )
    assert plan.outputs > 0
    assert 0 < plan.kept["1"] < 1


def test_a_plan_from_nothing_takes_both_stages(llama: LM) -> None:
    spec = load_task("sts-x2")
    plan = estimate_run(
        GenerateRequest(spec, llama, GenerateSettings(max_new_tokens=8), from_x1=500)
    )
    assert plan.items == 500
    assert plan.tries > 500
    single = estimate_run(
        GenerateRequest(
            load_task("review-sentiment"), llama, GenerateSettings(max_new_tokens=8), count=70
        )
    )
    assert single.items == 70
    assert single.tries >= 2 * 70


@pytest.mark.parametrize("rows", [4, 64])
def test_rows_change_nothing_but_the_time(rows: int) -> None:
    lm = tiny_lm("llama")
    small = request(lm, 6)
    plan, other = estimate_run(small, rows=rows), estimate_run(small, rows=16)
    assert (plan.outputs, plan.tries, plan.tokens) == (other.outputs, other.tries, other.tokens)
