"""A server on free ports, with a folder for data sets."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bandana_queries import Client


class Server:
    """A server, stopped at the end."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "files"
        self.files.mkdir()
        program = os.environ.get("BANDANA_PROGRAM", "bandana")
        command = [program, "serve", "--init", "--data-dir", str(folder / "data")]
        command += ["--data-sets", str(self.files), "--listen", "127.0.0.1:0"]
        command += ["--operator-listen", "127.0.0.1:0"]
        self._log = open(folder / "log", "w")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        assert self._process.stdout is not None
        lines = iter(self._process.stdout.readline, "")
        addresses = dict(line.strip().split("=") for line in (next(lines), next(lines)))
        self.url = f"http://{addresses['operator']}"

    def stop(self) -> None:
        """Ends it."""
        self._process.terminate()
        assert self._process.wait(60) == 0
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests, whose data sets have names of their own."""
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[Client]:
    """A client of the server."""
    with Client(server.url) as client:
        yield client
