"""The sampling law against independent code: a plain loop, transformers, and counting."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from tests.tiny import KINDS, tiny_lm
from tests.tiny.jobs import pair_jobs, run_jobs
from tilth.generation.attempts import Job, job_key
from tilth.generation.debias import (
    debiased_distribution,
    penalty,
    sample_indices,
    truncated_distribution,
)
from tilth.generation.engine import Engine, uniforms
from tilth.generation.settings import Sampling
from tilth.models.lm import LM


def plain_loop(lm: LM, job: Job, sampling: Sampling) -> list[int]:
    """Decode one try without cache or batch, as the paper writes it down."""
    contexts = [lm.tokenizer(prompt)["input_ids"] for prompt in job.prompts]
    drawn: list[int] = []
    for uniform in uniforms(job.key, sampling.max_new_tokens):
        rows = []
        for context in contexts:
            given = torch.tensor([context + drawn], device=lm.device)
            logits = lm.model(given).logits[0, -1].double()
            logits[lm.tokenizer.all_special_ids] = -math.inf
            rows.append(logits.softmax(-1))
        p = rows[0]
        if len(rows) > 1:
            delta = torch.clamp(p - torch.stack(rows[1:]).max(0).values, max=0)
            p = torch.clamp(torch.exp(sampling.decay * delta), min=sampling.floor) * p
        scores = (p / p.sum()).log()[None]
        scores = TemperatureLogitsWarper(sampling.temperature)(None, scores)
        if sampling.top_k:
            scores = TopKLogitsWarper(sampling.top_k)(None, scores)
        if sampling.top_p < 1:
            scores = TopPLogitsWarper(sampling.top_p)(None, scores)
        final = scores[0].softmax(-1).tolist()
        order = sorted(range(len(final)), key=lambda token: (-final[token], token))
        cumulative = np.cumsum([final[token] for token in order])
        drawn.append(order[int((cumulative <= uniform).sum())])
        if '"' in lm.tokenizer.decode(drawn[-1:]) or "\n" in lm.tokenizer.decode(drawn[-1:]):
            break
    return drawn


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_engine_equals_the_plain_loop(kind: str) -> None:
    lm = tiny_lm(kind)
    sampling = Sampling(max_new_tokens=12)
    jobs = list(pair_jobs(["the dog sleeps", "a man reads and reads on the red sea"]))
    ours = run_jobs(Engine(lm, sampling, rows=16), jobs)
    for job in jobs:
        tokens = plain_loop(lm, job, sampling)
        outcome = ours[job]
        assert outcome.tokens == len(tokens), (kind, job)
        text = lm.tokenizer.decode(tokens, clean_up_tokenization_spaces=False)
        assert outcome.text == text.split('"')[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"decay": 0},
        {"decay": 3000, "floor": 0.2},
        {"floor": 0.9},
        {"top_k": 0, "top_p": 0.7},
        {"top_k": 20, "top_p": 1.0, "temperature": 1.7},
        {"top_k": 0, "top_p": 1.0, "temperature": 0.5},
    ],
    ids=["no-debias", "strong", "mild", "top-p", "hot", "all"],
)
@torch.inference_mode()
def test_every_setting_equals_the_plain_loop(llama: LM, changed: dict[str, float]) -> None:
    sampling = replace(Sampling(max_new_tokens=8), **changed)
    texts = ["rain on the sea", "a man reads", "the dog sleeps"]
    jobs = [job for job in pair_jobs(texts, tries=3) if job.label != "1"]  # with counter labels
    ours = run_jobs(Engine(llama, sampling, rows=40), jobs)
    for job in jobs:
        drawn = plain_loop(llama, job, sampling)
        text = llama.tokenizer.decode(drawn, clean_up_tokenization_spaces=False)
        assert ours[job].tokens == len(drawn)
        assert ours[job].text == text.split('"')[0]
    for name in changed:  # each setting matters here: left at its default, texts would differ
        usual = replace(sampling, **{name: getattr(Sampling(), name)})
        others = run_jobs(Engine(llama, usual, rows=40), jobs)
        assert any(ours[job].text != others[job].text for job in jobs), name


@torch.inference_mode()
def test_greedy_equals_transformers_generate(llama: LM) -> None:
    sampling = Sampling(decay=0, top_k=1, top_p=1, max_new_tokens=20)
    jobs = list(pair_jobs(["the dog sleeps", "a red dog reads on and on", "rain"], tries=1))
    ours = run_jobs(Engine(llama, sampling, rows=8), jobs)
    for job in jobs:
        ids = llama.tokenizer(job.prompts[0], return_tensors="pt").to(llama.device)
        theirs = llama.model.generate(
            **ids, do_sample=False, max_new_tokens=20, min_new_tokens=20, pad_token_id=0,
        )[0, ids["input_ids"].shape[1] :]  # fmt: skip
        text = llama.tokenizer.decode(theirs, clean_up_tokenization_spaces=False)
        assert ours[job].text == text.split('"')[0].split("\n")[0] or ours[job].reason == "newline"


@torch.inference_mode()
def test_candidates_equal_what_transformers_sampling_keeps(llama: LM) -> None:
    ids = llama.tokenizer("the dog runs on the", return_tensors="pt").to(llama.device)
    theirs = llama.model.generate(
        **ids, do_sample=True, top_k=7, top_p=0.8, temperature=1.3, max_new_tokens=6,
        min_new_tokens=6, pad_token_id=0, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    length = ids["input_ids"].shape[1]
    for step, scores in enumerate(theirs.scores):
        logits = llama.model(theirs.sequences[:, : length + step]).logits[:, -1].clone()
        logits[:, 0] = -torch.inf  # end of sequence
        tokens, kept = truncated_distribution(
            logits.softmax(-1), temperature=1.3, top_k=7, top_p=0.8
        )
        ours = torch.zeros_like(scores).scatter_(1, tokens, kept)
        torch.testing.assert_close(ours, scores.softmax(-1), atol=1e-5, rtol=1e-3)


def test_tokens_follow_the_law_over_thousands_of_seeds(llama: LM) -> None:
    sampling = Sampling(decay=100, max_new_tokens=1, top_k=8)
    job = next(job for job in pair_jobs(["the red sea"]) if job.label == "0")
    seeds = 6000
    jobs = [Job(n, "x", "0", 0, job.prompts, job_key(n, "x", "0", 0)) for n in range(seeds)]
    outcomes = run_jobs(Engine(llama, sampling, rows=64), jobs)
    texts = [outcome.text + (outcome.reason or "closed") for outcome in outcomes.values()]

    with torch.inference_mode():
        rows = []
        for prompt in job.prompts:
            logits = llama.model(**llama.tokenizer(prompt, return_tensors="pt")).logits[:, -1]
            logits[:, 0] = -torch.inf
            rows.append(logits.softmax(-1))
    alpha = np.maximum(
        np.exp(100 * np.minimum(0, (rows[0] - torch.maximum(rows[1], rows[2])).numpy())), 0.01
    )
    p = (alpha * rows[0].numpy())[0]
    top = np.argsort(-p)[:8]
    share = p[top].astype(float) / p[top].astype(float).sum()
    share[np.concatenate(([0], np.cumsum(share)[:-1])) >= 0.9] = 0
    expected: dict[str, float] = {}
    for token, probability in zip(top, share / share.sum(), strict=True):
        if probability:
            text = llama.tokenizer.decode([token])
            name = "empty" if text.startswith('"') else text + "not-closed"
            name = text + "newline" if "\n" in text else name
            expected[name] = expected.get(name, 0) + probability * seeds
    assert set(texts) == set(expected)
    counts = [texts.count(name) for name in expected]
    assert stats.chisquare(counts, list(expected.values())).pvalue > 1e-3


def test_penalty_is_the_formula() -> None:
    own = torch.tensor([[0.5, 0.3, 0.2]])
    counter = torch.tensor([[0.1, 0.31, 0.59]])
    alpha = penalty(own, counter, decay=100, floor=0.01)
    expected = [[1.0, math.exp(100 * (0.3 - 0.31)), 0.01]]
    torch.testing.assert_close(alpha, torch.tensor(expected), rtol=1e-4, atol=1e-6)


def test_equal_logits_at_the_cut_all_stay_and_stand_by_id() -> None:
    weights = torch.tensor([[0.1, 0.3, 0.1, 0.3, 0.1, 0.1]])
    ids, kept = truncated_distribution(weights, top_k=3)
    assert ids[0, kept[0] > 0].tolist() == [1, 3, 0, 2, 4, 5]


def test_draw_inverts_the_distribution_at_its_edges() -> None:
    ids = torch.tensor([[7, 4, 9, 1]]).expand(4, -1)
    kept = torch.tensor([[0.5, 0.3, 0.2, 0.0]]).expand(4, -1)
    uniform = torch.tensor([0.0, 0.5, 0.81, 1 - 2**-24])
    assert ids.gather(-1, sample_indices(kept, uniform))[:, 0].tolist() == [7, 4, 9, 9]


@pytest.mark.parametrize("sharpness", [0.3, 3.0, 12.0])
@pytest.mark.parametrize("decay", [0.0, 100.0])
def test_the_shortlist_changes_nothing(sharpness: float, decay: float) -> None:
    """Flat distributions that debiasing turns over are where a shortlist could go wrong."""
    random = torch.Generator().manual_seed(3)
    logits = torch.randn(60, 1000, generator=random) * sharpness
    shares = logits.softmax(-1)
    members = torch.arange(60).reshape(20, 3)
    sampling = Sampling(decay, 0.01, temperature=1.3, top_k=5, top_p=0.9)
    ids, kept, factors = debiased_distribution(logits, members, sampling)
    own, counter = shares[members[:, 0]], shares[members[:, 1:]].amax(1)
    weights = own * penalty(own, counter, decay=decay, floor=0.01)
    expected, probabilities = truncated_distribution(weights, 1.3, 5, 0.9)
    places = kept > 0
    assert torch.equal(places, probabilities > 0)
    assert torch.equal(ids[places], expected[places])
    torch.testing.assert_close(kept, probabilities)
    alpha = penalty(own, counter, decay=decay, floor=0.01).gather(-1, expected)
    torch.testing.assert_close(factors[places], alpha[places])
