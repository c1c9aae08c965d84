"""A real server: its own process on a port of loopback, for as long as a block runs.

Room    tests of the server and of whoever calls one. Stopped by its process id, with SIGTERM.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import httpx

SOURCE = Path(__file__).parents[2] / "src"
LISTENS = "OMNIGRAPH_LISTEN_ADDR="
PATIENCE = 60  # seconds to start or to end; a test fails rather than hangs


@dataclass
class Served:
    """A server that runs; `graph` is the address of its only graph."""

    process: subprocess.Popen[str]
    url: str
    graph_id: str
    errors: Path

    @property
    def graph(self) -> str:
        """Where its graph is."""
        return f"{self.url}/graphs/{self.graph_id}"

    @property
    def log(self) -> str:
        """What it wrote on stderr."""
        return self.errors.read_text()

    def client(self, **options: object) -> httpx.Client:
        """Return an HTTP client whose paths count from the graph."""
        timeout = httpx.Timeout(PATIENCE)
        return httpx.Client(base_url=self.graph, **{"timeout": timeout, "trust_env": False, **options})  # type: ignore[arg-type]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it, and return its exit code."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        return self.process.wait(PATIENCE)


@contextmanager
def serving(
    address: str | Path | None,
    *arguments: str,
    graph_id: str = "kb",
    authenticated: bool = False,
    environment: Mapping[str, str] | None = None,
    python: Sequence[str] = ("-m", "omnigraph"),
) -> Iterator[Served]:
    """Serve a graph for a block; without tokens unless `authenticated` says that the arguments have some.

    `python` is what the interpreter runs: the command line, or a program that changes something before.
    """
    with tempfile.TemporaryDirectory(prefix="og-served-") as folder:
        errors = Path(folder, "stderr")
        open_mode = [] if authenticated else ["--unauthenticated"]
        place = [] if address is None else [str(address), "--id", graph_id]
        line = ["serve", *place, "--bind", "127.0.0.1:0", *open_mode, *arguments]
        with errors.open("w") as sink:
            process = subprocess.Popen(
                [sys.executable, *python, *line],
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
                env={**os.environ, "PYTHONPATH": str(SOURCE), **(environment or {})},
            )
        try:
            place_of = _listens(process, errors)
            yield Served(process, f"http://{place_of}", graph_id, errors)
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            cast(IO[str], process.stdout).close()


def _listens(process: subprocess.Popen[str], errors: Path) -> str:
    """Return where a server listens, once it says so."""
    watch = threading.Timer(PATIENCE, process.kill)
    watch.start()
    try:
        for line in cast(IO[str], process.stdout):
            if line.startswith(LISTENS):
                return line.removeprefix(LISTENS).strip()
    finally:
        watch.cancel()
    raise AssertionError(f"the server ended with {process.wait()}: {errors.read_text()}")
