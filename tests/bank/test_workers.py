import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from loky import get_reusable_executor

from tests.bank.tasks import die, fail, shift, wait_for_seen, where
from tests.tiny.calls import python, wait_until
from tilth.bank.ingest.workers import end_processes, in_processes
from tilth.errors import InputError, TilthError


@pytest.mark.parametrize("workers", [1, 2])
def test_every_task_is_done_once_with_the_common_arguments(workers: int) -> None:
    assert sorted(in_processes(workers, shift, iter(range(20)), 5, 2)) == list(range(5, 45, 2))
    assert list(in_processes(workers, shift, iter(()), 5)) == []


def test_no_more_processes_are_begun_than_there_are_tasks() -> None:
    for workers, tasks in ((1, 3), (12, 1)):
        found = in_processes(workers, where, iter(range(tasks)))
        assert {process for process, *_ in found} == {os.getpid()}
    end_processes()
    for process, threads, ignored in in_processes(12, where, iter(range(2))):
        assert process != os.getpid()
        assert (threads, ignored) == ("1", True)
    assert get_reusable_executor(reuse=True)._max_workers == 2


def test_what_is_done_first_comes_first(tmp_path: Path) -> None:
    order = []
    for task in in_processes(2, wait_for_seen, iter(range(3)), tmp_path):
        order.append(task)
        if task == 1:
            (tmp_path / "seen").touch()
    assert order.index(1) < order.index(0)
    assert sorted(order) == [0, 1, 2]


@pytest.mark.parametrize("workers", [1, 2])
def test_few_tasks_are_taken_ahead(workers: int) -> None:
    taken = 0

    def tasks() -> Iterator[int]:
        nonlocal taken
        for task in range(50):
            taken += 1
            yield task

    for done, _ in enumerate(in_processes(workers, shift, tasks(), 0)):
        assert taken <= done + 1 + 2 * workers


# Starting processes takes seconds: the next test shows that work goes on after what one has broken.


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_of_the_work_come_as_they_are(workers: int) -> None:
    with pytest.raises(InputError, match=r"^talk\.txt:7: is wrong: mend it$"):
        list(in_processes(workers, fail, iter(range(9))))


def test_a_killed_worker_is_one_clear_error() -> None:
    with pytest.raises(TilthError, match=r"a worker process was killed.* fewer --workers"):
        list(in_processes(2, die, iter(range(9))))


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_of_the_tasks_come_as_they_are(workers: int) -> None:
    def tasks() -> Iterator[int]:
        yield 0
        raise InputError("the source is broken")

    with pytest.raises(InputError, match=r"^the source is broken$"):
        list(in_processes(workers, fail, tasks()))


def test_work_may_be_given_up() -> None:
    work = in_processes(2, shift, iter(range(50)), 0)
    next(work)
    work.close()


def test_processes_stay_for_the_next_work_until_they_are_let_go() -> None:
    first = {found[0] for found in in_processes(2, where, iter(range(6)))}
    assert {found[0] for found in in_processes(2, where, iter(range(6)))} <= first
    end_processes()
    wait_until(lambda: not any(alive(worker) for worker in first), seconds=10)
    end_processes()  # nothing to end


def test_workers_that_make_parts_begin_without_torch() -> None:
    code = (
        "import sys, tilth.bank.ingest.parts\nprint('torch' in sys.modules, 'numba' in sys.modules)"
    )
    said = python(code)
    assert said.stdout.split() == ["False", "False"]


ASKER = """
import sys
from pathlib import Path
from tests.bank.tasks import nap
from loky import get_reusable_executor

from tilth.bank.ingest.workers import end_processes, in_processes
list(in_processes(2, nap, iter(range(2)), Path(sys.argv[1])))
"""


def test_workers_end_with_the_process_that_asked(tmp_path: Path) -> None:
    asker = subprocess.Popen([sys.executable, "-c", ASKER, str(tmp_path)])
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    workers = [int(item.name) for item in tmp_path.iterdir()]
    asker.kill()
    asker.wait()
    wait_until(lambda: not any(alive(worker) for worker in workers), seconds=10)


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
