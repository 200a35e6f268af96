"""Runs whose parts are made by workers of a Ray cluster."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import jobs
from tests.system.commands import tilth as command
from tests.tiny import salads, tiny_lm, write_lines
from tilth.errors import InputError, TilthError
from tilth.runs import Progress, versions
from tilth.runs.backends import PartJob, make_parts
from tilth.runs.cluster import Cluster

TWO = {"on": "ray", "workers": 2}


def made(path: Path, job: PartJob, cluster: Cluster | None = None) -> dict[str, bytes]:
    with jobs.numbers_run(path) as run:
        make_parts(run, job, cluster, quiet=True)
    return jobs.part_files(path)


@pytest.fixture
def local(tmp_path: Path) -> dict[str, bytes]:
    return made(tmp_path / "local", jobs.numbers_job())


def test_parts_are_those_of_one_process(ray: Any, tmp_path: Path, local: dict[str, bytes]) -> None:
    with jobs.numbers_run(tmp_path / "run") as run:
        run.write_part(3, jobs.begin(None, run)(3, jobs.given(jobs.SIZE, 3), Progress(0)))
        before = run.part_path(3).stat().st_ino
        make_parts(run, jobs.numbers_job(), Cluster(**TWO), quiet=True)
        assert run.part_path(3).stat().st_ino == before
    assert jobs.part_files(tmp_path / "run") == local


def test_workers_agree_on_the_facts_of_the_first(ray: Any, tmp_path: Path) -> None:
    (tmp_path / "facts").mkdir()
    made(tmp_path / "run", jobs.numbers_job(facts=tmp_path / "facts"), Cluster("ray", workers=3))
    said = {item.name: item.read_text() for item in (tmp_path / "facts").iterdir()}
    assert len(set(said.values())) == 1
    assert set(said.values()) <= set(said)
    assert jobs.numbers_run(tmp_path / "run").resolved == {"factor": int(said.popitem()[1])}


def test_parts_of_killed_workers_are_made_by_others(
    ray: Any, tmp_path: Path, local: dict[str, bytes]
) -> None:
    accident = partial(jobs.die_once, tmp_path)
    assert made(tmp_path / "run", jobs.numbers_job(accident=accident), Cluster(**TWO)) == local
    assert len(list(tmp_path.glob("died-*"))) == 3


@pytest.mark.slow
def test_a_part_that_kills_its_workers_ends_the_run(ray: Any, tmp_path: Path) -> None:
    job = jobs.numbers_job(accident=partial(jobs.die, 5))
    with pytest.raises(TilthError, match=r"^5 workers of the cluster died of the same work: give"):
        made(tmp_path / "run", job, Cluster(**TWO))
    assert jobs.numbers_run(tmp_path / "run").missing() == [5]


@pytest.mark.slow
def test_workers_that_die_while_they_start_end_the_run(ray: Any, tmp_path: Path) -> None:
    job = PartJob(jobs.die_at_start, jobs.numbers_job().given, [3] * 8)
    with pytest.raises(TilthError, match=r"^every worker of the cluster died while it started \("):
        made(tmp_path / "run", job, Cluster(**TWO))


def test_an_error_of_the_work_is_the_runs(ray: Any, tmp_path: Path) -> None:
    job = jobs.numbers_job(accident=jobs.refuse)
    with pytest.raises(InputError, match=r"^talk\.txt:7: is wrong: mend it$"):
        made(tmp_path / "run", job, Cluster("ray", workers=1))
    assert jobs.numbers_run(tmp_path / "run").missing() == [5, 6, 7]


def test_a_worker_without_the_model_is_named(ray: Any, tmp_path: Path) -> None:
    job = PartJob(jobs.refuse_at_start, jobs.numbers_job().given, [3] * 8)
    with pytest.raises(InputError, match=r"^host \S+ of the cluster: model 'x' is not there$"):
        made(tmp_path / "run", job, Cluster(**TWO))


def test_the_earlier_run_goes_with_the_first_part(ray: Any, tmp_path: Path) -> None:
    made(tmp_path / "run", jobs.numbers_job())
    with jobs.numbers_run(tmp_path / "run", parts=4, overwrite=True) as run:
        make_parts(run, jobs.numbers_job(4), Cluster(**TWO), quiet=True)
        assert not (run.path / ".tilth-old").exists()
    assert len(jobs.part_files(tmp_path / "run")) == 4


def test_a_folder_that_a_host_does_not_see_is_refused(tmp_path: Path) -> None:
    with jobs.numbers_run(tmp_path / "run") as run:
        worker = run.as_worker()
        worker.check_shared()
        (tmp_path / "run").rename(tmp_path / "elsewhere")
        with pytest.raises(InputError, match=r"run: host \S+ does not see this run folder"):
            worker.check_shared()
        jobs.numbers_run(tmp_path / "run")  # the same path on another disk
        with pytest.raises(InputError, match=r"run: host \S+ does not see this run folder"):
            worker.check_shared()


def test_other_versions_on_a_host_are_refused_with_both(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilth.runs import ray_cluster

    ours = {**versions(), "torch": "1.0", "more": "3"}
    monkeypatch.setattr(ray_cluster, "versions", lambda: ours)
    said = r"^host \S+ of the cluster has torch \S+, more \(none\); here it is torch 1.0, more 3: "
    with pytest.raises(InputError, match=said):
        made(tmp_path / "run", jobs.numbers_job(), Cluster(**TWO))


def test_workers_that_no_host_has_room_for_are_refused(ray: Any, tmp_path: Path) -> None:
    for size, found in (
        ({"cpus_per_worker": 64.0}, "64 CPUs"),
        ({"gpus_per_worker": 0.5}, "0.5 G"),
    ):
        with pytest.raises(InputError, match=f"no host of the cluster has room .* {found}"):
            made(tmp_path / "run", jobs.numbers_job(), Cluster("ray", **size))


def test_generate_writes_the_same_rows(ray: Any, tmp_path: Path) -> None:
    import tilth

    lm = tiny_lm("llama")
    lm.model.save_pretrained(tmp_path / "lm")
    lm.tokenizer.save_pretrained(tmp_path / "lm")
    lm = tilth.load_lm(str(tmp_path / "lm"), device="cpu", precision="float32")
    how: dict[str, Any] = {"per_input": 1, "max_new_tokens": 20, "part_size": 8}
    tilth.generate("sts-x2", lm, salads(40), out=tmp_path / "local", **how)
    inputs = write_lines(tmp_path / "texts.txt", salads(40))
    words = [word for name, one in how.items() for word in (f"--{name.replace('_', '-')}", one)]
    command(
        "generate", "sts-x2", "--inputs", inputs, "--model", lm.name, "--precision", "float32",
        "--device", "cpu", "--on", "ray", "--workers", 2, "--out", tmp_path / "run", *words,
    )  # fmt: skip
    for name in ("parts", "dataset"):
        local, ours = (
            {item.name: item.read_bytes() for item in (tmp_path / one / name).rglob("*.parquet")}
            for one in ("local", "run")
        )
        assert local
        assert ours == local
