"""A real Milvus server on this machine, from the wheel that carries its binary.

It needs libraries of its own, so it gets an environment of its own, made once and kept in the
user's cache; where that cannot be made, tests that need the server are skipped and say why.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import venv
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pylate-eigenli-tests"
ENVIRONMENT = CACHE / "milvus-2.3.5"
PYTHON = ENVIRONMENT / "bin" / "python"
REQUIREMENTS = ["milvus==2.3.5", "pymilvus==2.3.8", "setuptools<80", "marshmallow<4"]

SERVE = """
import socket, sys
from milvus import default_server as server

def bound(port):
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return None

# By itself it takes the ports of a server killed a moment ago for used, and then the next ones.
server.config.try_bind_port = bound
server.set_base_dir(sys.argv[1])
server.config.update(proxy_port=int(sys.argv[2]))
# For small, busy tests: by default everything waits for ticks of up to a second, and a server
# that starts again for its predecessor, which may only be slow to answer.
for name, value in (
    ("proxy.timeTickInterval", 50),
    ("queryCoord.checkInterval", 100),
    ("queryCoord.distPullInterval", 100),
    ("common.session.ttl", 3),
):
    server.config.set(name, value)
server.wait_for_started = False
server.start()
while server.server_proc.poll() is None:
    try:
        server.wait_started(timeout=1000)
    except TimeoutError:
        continue
    print(server.server_proc.pid, flush=True)
    server.server_proc.wait()
"""


def _install() -> None:
    """Make the environment of the server unless it is there; skip where that fails."""
    if PYTHON.exists() and not subprocess.run([PYTHON, "-c", "import milvus"]).returncode:
        return
    if sys.platform == "win32":
        pytest.skip("the Milvus server has no wheel for Windows")
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "10"]
    done = subprocess.run([*pip, *REQUIREMENTS], capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        pytest.skip(f"the wheel of the Milvus server cannot be installed: {reason}")


def _free_port() -> int:
    """One that no outgoing connection is given while the server that listens to it is dead."""
    for port in random.sample(range(20_000, 32_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    pytest.skip("there is no free port for the Milvus server")


class RealMilvus:
    """A server with its data in a folder; it can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        _install()
        self._folder = folder
        self._port = _free_port()
        binaries = CACHE / "milvus-2.3.5-bin"  # unpacked once, not for every folder
        binaries.mkdir(exist_ok=True)
        (folder / "bin").symlink_to(binaries)
        self.start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        command = [PYTHON, "-c", SERVE, str(self._folder), str(self._port)]
        self._starter = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._starter.stdout is not None
        line = self._starter.stdout.readline()
        if not line:  # as where another one runs: some of its ports are always the same
            pytest.skip(f"the Milvus server does not start, see {self._folder / 'logs'}")
        self._pid = int(line)

    def kill(self) -> None:
        """End the server as a power cut would, unless it has ended."""
        if self._starter.poll() is not None:
            return
        os.kill(self._pid, signal.SIGKILL)
        self._starter.wait()
        assert self._starter.stdout is not None
        self._starter.stdout.close()
