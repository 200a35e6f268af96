"""The choice among candidates: at a scripted sampler, at endpoints and at local models."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import tilth
from tests.models.openai_server import OpenAIServer, likelihoods, rendered, written
from tests.tiny import KINDS, tiny_lm
from tests.tiny.calls import stopped
from tests.tiny.chats import CHATS, chat_lm
from tilth.errors import InputError
from tilth.generation import engine as engines
from tilth.generation import generate as generating
from tilth.generation.attempts import Job, NextJob, Outcome, job_key
from tilth.generation.contrast import ContrastiveSampler
from tilth.generation.endpoint_sampler import EndpointSampler
from tilth.generation.engine import Engine
from tilth.generation.settings import Sampling
from tilth.models.endpoint import Endpoint, RetryPolicy, load_endpoint
from tilth.models.lm import LM

QUICK = RetryPolicy(failing=6.0, first=0.3, answer=3.0)
TEXTS = [f"a dog number {n} runs on the sea" for n in range(5)]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, no_proxy: None) -> None:
    monkeypatch.setattr("tilth.models.endpoint.FIRST_PAUSE", 0.02)


def job(name: str, *prompts: str) -> Job:
    return Job(0, name, "1", 0, prompts, job_key(0, name, "1", 0))


@dataclass
class Scripted:
    """Draws the texts it is told, in turn; a text begins with its own and counter likelihoods."""

    texts: list[str]
    seen: list[Job] = field(default_factory=list)
    scored: int = 0

    def run(self, jobs: Iterable[Job], next_job: NextJob) -> None:
        for one in jobs:
            text = self.texts[len(self.seen)]
            self.seen.append(one)
            reason = "not-closed" if text.startswith("-") else None
            assert next_job(Outcome(one, text, reason, 10, 0.0)) is None

    def log_likelihoods(self, texts: Sequence[tuple[str, str]]) -> list[float]:
        self.scored += len(texts)
        places = {"own": 0, "a": 1, "b": 2}
        return [float(text.split()[places[prompt]]) for prompt, text in texts]


def chosen(sampler: Any, jobs: Iterable[Job], candidates: int, **options: Any) -> list[Outcome]:
    found: list[Outcome] = []
    options = {"decay": 0.0, "window": 2, **options}
    ContrastiveSampler(sampler, candidates, **options).run(jobs, found.append)
    return found


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1 2 3", "5 4 0", "9 0 9"], ("5 4 0", 1.0)),  # against the likeliest counter label
        (["1 2 0", "-x", "0 2 0"], ("1 2 0", -1.0)),
        (["2 1 0", "3 2 0", "2 1 0"], ("2 1 0", 1.0)),  # the first of equal ones
        (["nan 0 0", "0 9 9", "nan 1 1"], ("0 9 9", -9.0)),
        (["9 nan 0", "9 0 nan", "0 1 1"], ("0 1 1", -1.0)),  # in whichever order
        (["-a", "-b", "-c"], ("-a", None)),
    ],
)
def test_the_widest_margin_is_kept(texts: list[str], expected: tuple[str, float | None]) -> None:
    asked = job("x", "own", "a", "b")
    (outcome,) = chosen(Scripted(texts), [asked], 3)
    assert (outcome.text, outcome.margin) == expected
    assert outcome.job == asked
    assert outcome.tokens == 30
    assert outcome.reason == ("not-closed" if outcome.text.startswith("-") else None)


def test_candidates_differ_in_their_random_numbers_and_prompts() -> None:
    asked = [job("x", "own", "a"), job("y", "own")]
    for decay in (0.0, 100.0):
        sampler = Scripted(["1 2"] * 4)
        chosen(sampler, asked, 3, decay=decay)
        assert sampler.seen[0].key == asked[0].key
        assert len({one.key for one in sampler.seen}) == 4
        # Without self-debiasing, counter prompts are not decoded; no counter label, no choice.
        assert sampler.seen[0].prompts == (("own", "a") if decay else ("own",))
        assert [one.source_id for one in sampler.seen] == ["x", "x", "x", "y"]
        assert sampler.scored == 2  # one text, under two prompts


def test_a_dropped_text_is_tried_again() -> None:
    asked, found = job("x", "own", "a"), list[Outcome]()
    again = Job(0, "x", "1", 1, asked.prompts, job_key(0, "x", "1", 1))

    def then(outcome: Outcome) -> Job | None:
        found.append(outcome)
        return again if outcome.reason and outcome.job == asked else None

    sampler = Scripted(["-a", "-b", "1 2", "4 2"])
    ContrastiveSampler(sampler, 2, decay=0.0, window=8).run([asked], then)
    assert [(one.job, one.text) for one in found] == [(asked, "-a"), (again, "4 2")]


@pytest.mark.parametrize("make", [*KINDS, *(f"chat {kind}" for kind in CHATS)])
def test_log_likelihoods_are_those_of_the_plain_forward(make: str) -> None:
    kind = make.removeprefix("chat ")
    lm = tiny_lm(kind) if make == kind else chat_lm(kind)
    engine = Engine(lm, Sampling(chat=False), rows=4)
    prompts = ['Task: a dog.\nText: "', 'Task: write more of the words.\nText: "']
    texts = [" the man runs", "dog", "a", "the red sea and the rain sleeps on."]
    asked = [(prompt, text) for prompt in prompts for text in texts]
    for (prompt, text), found in zip(asked, engine.log_likelihoods(asked), strict=True):
        ids, start = (lm.tokenizer(one)["input_ids"] for one in (f'{prompt}{text}"', prompt))
        with torch.inference_mode():
            given = torch.tensor([ids], device=lm.device)
            plain = lm.model(input_ids=given).logits[0].log_softmax(-1)
        expected = sum(float(plain[n - 1, ids[n]]) for n in range(len(start), len(ids)))
        assert found == pytest.approx(expected, abs=1e-3)
    assert engine.log_likelihoods([]) == []


def test_texts_longer_than_the_model_reads_have_no_likelihood(llama: LM) -> None:
    engine = Engine(llama, Sampling(), rows=4)
    long = "the man runs " * engine._positions
    one, *others = engine.log_likelihoods([
        ('Text: "', "a dog"), (f'{long}: "', "a dog"), ('Text: "', long)
    ])  # fmt: skip
    assert np.isfinite(one)
    assert np.isnan(others).all()


def test_batches_do_not_change_log_likelihoods(llama: LM, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(llama, Sampling(), rows=4)
    asked = [(f'Say {text}: "', text) for text in (*TEXTS, "a", "b" * 40)]
    found = engine.log_likelihoods(asked)
    monkeypatch.setattr(engines, "_SCORED_TOKENS", 1)
    assert engine.log_likelihoods(asked) == pytest.approx(found, abs=1e-3)


def test_rows_of_a_local_model(llama: LM, tmp_path: Path) -> None:
    def rows(**settings: Any) -> list[tuple[Any, ...]]:
        kept = tilth.generate("sts-x2", llama, TEXTS, **settings)
        return [tuple(row.values()) for row in kept.remove_columns(
            [name for name in kept.column_names if name == "margin"])]  # fmt: skip

    plain = rows(decay=0.0)
    for decay in (0.0, 100.0):
        several = rows(decay=decay, candidates=3)
        assert several == rows(decay=decay, candidates=3)
        # Labels 0.5 and 0 have counter labels.
        differ = {one[2] for one in set(several) ^ set(rows(decay=decay))}
        assert differ == {0.5, 0.0}
    assert plain == rows(decay=0.0, candidates=1)

    out = tmp_path / "run"
    again = {"decay": 0.0, "candidates": 3, "part_size": 2}
    with stopped(generating, "make_part", 1):
        rows(**again, out=out)
    assert len(list((out / "parts").glob("*.parquet"))) == 1
    assert rows(**again, out=out) == rows(decay=0.0, candidates=3)
    table = pq.read_table(out / "dataset" / "data" / "train.parquet").to_pylist()
    assert {row["margin"] is None for row in table if row["label"] == 1.0} == {True}
    assert all(math.isfinite(row["margin"]) for row in table if row["label"] != 1.0)
    with pytest.raises(InputError, match="candidates is 3 in the folder, 4 asked"):
        rows(**{**again, "candidates": 4}, out=out)


def load(server: OpenAIServer, *, chat: bool = False) -> Endpoint:
    endpoint = load_endpoint(server.name(chat=chat), policy=QUICK)
    server.requests.clear()
    return endpoint


def expected_text(one: Job, candidates: int) -> str:
    """Return the candidate that the server's likelihoods choose, by completions."""
    seed = int.from_bytes(one.key[:4], "big") >> 1
    texts = [written(one.prompts[0], seed, n) for n in range(candidates)]

    def margin(text: str) -> float:
        own, *counters = (sum(likelihoods(f'{p}{text}"')[len(p) - 1 :]) for p in one.prompts)
        return own - max(counters)

    return max(texts, key=margin)


@pytest.mark.parametrize("scoring", ["echo", "prompt_logprobs"])
@pytest.mark.parametrize("usage", [True, False])
def test_an_endpoints_candidates_are_chosen_by_its_likelihoods(scoring: str, usage: bool) -> None:
    asked = [job(f"s{n}", f'Own {n}: "', f'Other {n}: "', f'A third {n}: "') for n in range(6)]
    with OpenAIServer(scorings=(scoring,), usage=usage) as server:
        sampler = EndpointSampler(load(server), Sampling(), concurrency=3)
        found = chosen(sampler, asked, 4)
        drawn = [body for body in server.requests if body.get("n") == 4]
    assert len(drawn) == len(asked)  # the candidates of a text share a request
    assert [one.text for one in found] == [expected_text(one, 4) for one in asked]
    assert len({one.text != written(one.job.prompts[0], int.from_bytes(one.job.key[:4], "big") >> 1,
                                    0) for one in found}) == 2  # fmt: skip


def test_a_chat_endpoint_scores_the_answer_within_the_chat() -> None:
    asked = job("s", 'Own: "', 'Other: "')
    with OpenAIServer(scorings=("prompt_logprobs",)) as server:
        endpoint = load(server, chat=True)
        (outcome,) = chosen(EndpointSampler(endpoint, Sampling()), [asked], 3)
        bodies = [body for body in server.requests if "prompt_logprobs" in body]
        with_text = [body for body in bodies if body["messages"][-1]["role"] == "assistant"]
        drawn = next(body for body in server.requests if body.get("n") == 3)

    def likelihood(prompt: str, text: str) -> float:
        turns = [drawn["messages"][0], {"role": "user", "content": prompt}]
        whole = rendered([*turns, {"role": "assistant", "content": text}])
        return sum(likelihoods(whole)) - sum(likelihoods(rendered(turns)))

    texts = [written('Own: "', drawn["seed"], n) for n in range(3)]
    margins = {text: likelihood('Own: "', text) - likelihood('Other: "', text) for text in texts}
    assert outcome.text == max(margins, key=margins.__getitem__)
    assert outcome.margin == pytest.approx(margins[outcome.text])
    assert with_text
    for body in with_text:
        assert body["continue_final_message"]
        assert not body["add_generation_prompt"]
        assert body["max_tokens"] == 1


def test_rows_of_an_endpoint_do_not_depend_on_timing(tmp_path: Path) -> None:
    found = []
    for number, trouble in enumerate(([], [0.05, None, 500, "cut", None, 0.02, 500])):
        with OpenAIServer(scorings=("echo",)) as server:
            endpoint = load(server)
            endpoint.find_scoring()
            server.trouble.extend(trouble)
            kept = tilth.generate(
                "sts-x2", endpoint, TEXTS, candidates=3, rows=1 + 5 * number, part_size=2
            )
        found.append([tuple(row.values())[:3] for row in kept])
    assert found[0] == found[1]
    assert len(found[0]) == 6 * len(TEXTS)


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("status", [200, 400, 500])
def test_a_server_without_likelihoods_is_refused_before_a_text_is_asked_for(
    chat: bool, status: int
) -> None:
    with OpenAIServer(unscored=status) as server:
        endpoint = load(server, chat=chat)
        with pytest.raises(InputError, match="gives no log-probabilities of prompts") as refused:
            tilth.generate("sts-x2", endpoint, TEXTS, candidates=2)
        assert "leave out --candidates, or ask a server that does, such as vLLM" in str(
            refused.value
        )
        assert all({"echo", "prompt_logprobs"} & set(body) for body in server.requests)
        assert endpoint.policy == QUICK
        assert len(tilth.generate("sts-x2", endpoint, TEXTS[:1]))
