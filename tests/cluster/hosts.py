"""Hosts of a Ray cluster on this machine: network namespaces, each with an address and a raylet."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BRIDGE, _NET = "tilth-br", "10.77.0"
_PORT = 6379
_RAY = f"{sys.executable} -c 'from ray.scripts.scripts import main; main()' start"


def ip(words: str, *, check: bool = True) -> str:
    return subprocess.run(
        ["ip", *words.split()], check=check, capture_output=True, text=True
    ).stdout


def can_make_hosts() -> bool:
    """Return whether this process may make network namespaces and links."""
    if shutil.which("ip") is None or os.geteuid():
        return False
    name = f"tilth-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    ip(f"netns del {name}", check=False)
    return made.returncode == 0


class Hosts:
    """Some hosts on one network; host 0 is the head, the last, `bare`, has no Ray."""

    def __init__(self, count: int) -> None:
        self.count, self.bare = count + 1, count
        self.folder = Path(tempfile.mkdtemp(prefix="tc-", dir="/tmp"))  # sockets need short names
        (self.folder / "token").write_text(secrets.token_hex(32))

    def name(self, host: int) -> str:
        return f"tilth-h{host}"

    def address(self, host: int) -> str:
        return f"{_NET}.{host + 10}"

    def connect(self) -> None:
        ip(f"link add {_BRIDGE} type bridge")
        ip(f"link set {_BRIDGE} up")
        for host in range(self.count):
            name, veth = self.name(host), f"tilth-v{host}"
            ip(f"netns add {name}")
            ip(f"link add {veth} type veth peer name eth0 netns {name}")
            ip(f"link set {veth} master {_BRIDGE} up")
            ip(f"-n {name} addr add {self.address(host)}/24 dev eth0")
            ip(f"-n {name} link set eth0 up")
            ip(f"-n {name} link set lo up")
            ip(f"-n {name} route add default dev eth0")  # Ray finds the host's address by it

    def popen(self, host: int, command: Sequence[str] | str) -> subprocess.Popen[str]:
        """Start a program on a host; a command in one text is a shell's."""
        words = ["sh", "-c", command] if isinstance(command, str) else list(command)
        environment = {
            **os.environ, "RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ADDRESS": f"{self.address(0)}:{_PORT}", "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.folder / "token"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }  # fmt: skip
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name(host), *words], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def start(self, host: int, *, cpus: int = 1, first: str = "true") -> None:
        """Start Ray on a host; `first` is a shell command that its processes see the result of."""
        place = (
            f"--head --port={_PORT} --include-dashboard=false --temp-dir={self.folder}/ray"
            if host == 0
            else f"--address={self.address(0)}:{_PORT}"
        )
        words = f"{place} --node-ip-address={self.address(host)} --num-cpus={cpus}"
        words += " --object-store-memory=100000000 --disable-usage-stats"
        log = self.folder / f"start-{host}.log"
        started = self.popen(host, f"{first} && {_RAY} {words} >{log} 2>&1")
        started.communicate(timeout=120)
        if started.returncode:
            raise RuntimeError(log.read_text())

    def processes(self, host: int, title: str = "") -> list[int]:
        """Return the processes of a host whose title begins so."""
        found = []
        for pid in ip(f"netns pids {self.name(host)}", check=False).split():
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(title.encode()):
                    found.append(int(pid))
        return found

    def workers(self) -> list[int]:
        return [pid for host in range(self.count) for pid in self.processes(host, "ray::_Worker")]

    def kill(self, host: int) -> None:
        """Kill all processes of a host, as when its power fails."""
        for pid in self.processes(host):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def cut(self, host: int) -> None:
        ip(f"link set tilth-v{host} down")

    def heal(self, host: int) -> None:
        ip(f"link set tilth-v{host} up")

    def disconnect(self) -> None:
        for host in range(self.count):
            self.kill(host)
            ip(f"netns del {self.name(host)}", check=False)
            ip(f"link del tilth-v{host}", check=False)
        ip(f"link del {_BRIDGE}", check=False)


@contextmanager
def cluster(cpus: Sequence[int]) -> Iterator[Hosts]:
    """Start hosts with Ray, each with as many cores, and one without; end them."""
    hosts = Hosts(len(cpus))
    hosts.disconnect()  # what a killed test left
    try:
        hosts.connect()
        for host, number in enumerate(cpus):
            hosts.start(host, cpus=number)
        yield hosts
    finally:
        hosts.disconnect()
        shutil.rmtree(hosts.folder, ignore_errors=True)
