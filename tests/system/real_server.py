"""A real OpenAI-compatible server (llama-cpp-python's) with a tiny model, for the tests.

`python tests/system/real_server.py` installs it into a virtual environment of its own, in
~/.cache/tilth/real-server or where TILTH_REAL_SERVER points: it compiles llama.cpp with gcc and
cmake, which takes some twenty minutes on two cores, once. Then `make test-all` uses it.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

PACKAGES = ("llama-cpp-python[server]==0.3.36", "gguf==0.19.0")
CMAKE = "-DGGML_OPENMP=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF"


def home() -> Path:
    """Return the folder of the server's virtual environment."""
    named = os.environ.get("TILTH_REAL_SERVER")
    return Path(named) if named else Path.home() / ".cache" / "tilth" / "real-server"


def python() -> Path:
    return home() / "bin" / "python"


def why_not() -> str | None:
    """Return why there is no server to test against, if so."""
    if not python().is_file():
        return "no server: python tests/system/real_server.py installs it (some twenty minutes)"
    probe = [python(), "-c", "import llama_cpp.server.app, gguf"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{home()} is no whole installation: {done.stderr.strip().splitlines()[-1]}"
    return None


def install() -> None:
    subprocess.run([sys.executable, "-m", "venv", home()], check=True)
    environment = {"CMAKE_BUILD_PARALLEL_LEVEL": "2", "CMAKE_ARGS": CMAKE, **os.environ}
    subprocess.run([python(), "-m", "pip", "install", *PACKAGES], env=environment, check=True)


def write_model(path: Path) -> None:
    script = Path(__file__).with_name("tiny_gguf.py")
    subprocess.run([python(), script, path], check=True)


class RealServer:
    """A server process on loopback that can be killed and started again on its port."""

    def __init__(self, model: Path, log: Path) -> None:
        self.model, self.log = model, log
        self.process: subprocess.Popen[bytes] | None = None
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = int(one.getsockname()[1])

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def name(self, *, chat: bool = False) -> str:
        return f"openai{'-chat' if chat else ''}:{self.base}#tiny"

    def start(self, *, wait: bool = True) -> None:
        options = {
            "model": self.model, "model_alias": "tiny", "n_ctx": 512, "n_threads": 1,
            "host": "127.0.0.1", "port": self.port,
        }  # fmt: skip
        arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [python(), "-m", "llama_cpp.server", *arguments], stdout=log, stderr=log
            )
        while wait and not self._answers():
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended: {self.log.read_text()[-1000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """kill -9: no answer is finished, no connection is closed properly."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.base}/models", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


if __name__ == "__main__":
    install()
