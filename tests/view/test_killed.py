"""Annotators at once while the server is killed: no answer is lost, none is there twice.

`TILTH_KILLS=20 TILTH_ANNOTATIONS=10000` sets how many of each.
"""

import os
import random
import re
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.view.pages import pairs, served, write_run
from tilth.view.annotations import Annotations, annotations_folder

KILLS = int(os.environ.get("TILTH_KILLS", 2))
ANNOTATIONS = int(os.environ.get("TILTH_ANNOTATIONS", 60))
PEOPLE = ("Ann", "Bob", "Eve", "Joe")


class Annotator(threading.Thread):
    """One person: looks at rows and answers them until none is left."""

    def __init__(self, name: str, urls: list[str]) -> None:
        super().__init__(name=name, daemon=True)
        self.urls = urls  # of the servers so far
        self.confirmed: dict[int, str] = {}
        self.rng = random.Random(name)
        self.slowest = 0.0

    def run(self) -> None:
        known = ""
        client = httpx.Client()
        while True:
            try:
                if known != self.urls[-1]:
                    known = self.urls[-1]
                    client.close()
                    client = httpx.Client(base_url=known.partition("/?")[0], timeout=30)
                    client.get(known)
                if not self._judge(client):
                    client.close()
                    return
            except httpx.TransportError:  # noqa: PERF203 - it is waited for a server
                time.sleep(0.05)

    def _judge(self, client: httpx.Client) -> bool:
        begun = time.perf_counter()
        address = f"/annotate?run=pairs&sample=1&person={self.name}"
        page = client.get(address)
        place = re.search(r'name="place" value="(\d+)"', page.text)
        csrf = re.search(r'name="csrf" value="(\w+)"', page.text)
        if page.status_code != 200 or place is None or csrf is None:
            return "no row left" not in page.text
        value = self.rng.choice(["1", "0.5", "0"])
        fields = {"csrf": csrf[1], "run": "pairs", "sample": "1", "person": self.name,
                  "place": place[1], "value": value}  # fmt: skip
        origin = str(client.base_url).rstrip("/")
        answer = client.post("/answer", data=fields, headers={"Origin": origin})
        if answer.status_code == 303:
            assert int(place[1]) not in self.confirmed
            self.confirmed[int(place[1])] = value
            self.slowest = max(self.slowest, time.perf_counter() - begun)
        return True


@pytest.mark.timeout(3600)
def test_no_answer_is_lost_and_none_is_there_twice(tmp_path: Path) -> None:
    run = write_run(tmp_path / "pairs", pairs(ANNOTATIONS), parts=1)
    notes = Annotations(annotations_folder(run))
    urls: list[str] = []
    people = [Annotator(name, urls) for name in PEOPLE]
    rng = random.Random(0)
    for kill in range(KILLS + 1):
        with served(tmp_path) as (url, process):
            if not kill:
                draw(url)
            urls.append(url)
            if not kill:
                for one in people:
                    one.start()
            if kill == KILLS:
                for one in people:
                    one.join()
            else:
                enough = ANNOTATIONS * (kill + rng.random()) / (KILLS + 1)
                while sum(len(one.confirmed) for one in people) < enough:
                    time.sleep(0.01)
                process.send_signal(signal.SIGKILL)
                process.wait()
    kept = {(one.place, one.person): one.value for one in notes.answers(1)}
    assert sorted(place for place, _ in kept) == list(range(ANNOTATIONS))  # each once
    for one in people:
        for place, value in one.confirmed.items():
            assert kept[place, one.name] == value


def draw(url: str) -> None:
    """Draw all rows as a sample, each for one person."""
    base = url.partition("/?")[0]
    with httpx.Client(base_url=base, timeout=30) as client:
        client.get(url)
        page = client.get("/samples?run=pairs").text
        csrf = re.search(r'name="csrf" value="(\w+)"', page)
        assert csrf
        fields = {"csrf": csrf[1], "run": "pairs", "name": "all", "task": "class", "seed": "0",
                  "draw": "random", "count": str(ANNOTATIONS), "overlap": "0",
                  "labels": "1\n0.5\n0"}  # fmt: skip
        answer = client.post("/sample", data=fields, headers={"Origin": base})
        assert answer.status_code == 303, answer.text
