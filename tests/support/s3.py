"""An S3 store for tests: real requests, real conditional writes, nothing outside this machine.

Room    test support. Knows nothing of graphs; `proxy.py` goes between it and the code under test.
Given   nothing: the server picks its port and keeps its objects in memory.
Gives   an endpoint, buckets, and the storage options Lance needs to reach them.
Touch   the server's own side is `_serve`, run in a separate process by executing this file.
"""

from __future__ import annotations

import http.client
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

REGION = "us-east-1"
ACCESS_KEY = "test"
SECRET_KEY = "test-secret"

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0

Environ = dict[str, Any]
WsgiApp = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class S3Server:
    """A store in its own process, for as long as the `with` block lasts.

    A separate process keeps the store's work off the interpreter lock of the code that is being timed.
    """

    def __init__(self) -> None:
        self.endpoint = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._process = process
        try:
            self.endpoint = f"http://127.0.0.1:{_announced_port(process)}"
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server's process; its objects go with it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def client(self, endpoint: str | None = None, **config: Any) -> Any:
        """Return a boto3 client of the store (or of a proxy's endpoint) that never retries on its own."""
        # Imported late: every spawned process that can reach this module would pay for it.
        import boto3
        from botocore.config import Config

        settings = {"retries": {"total_max_attempts": 1}, "s3": {"addressing_style": "path"}} | config
        return boto3.client(
            "s3",
            endpoint_url=endpoint or self.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(**settings),
        )

    def make_bucket(self, name: str) -> None:
        """Create an empty bucket; S3 wants at least three characters."""
        client = http.client.HTTPConnection(self.endpoint.removeprefix("http://"))
        try:
            client.request("PUT", f"/{name}")  # a boto3 client would take fifty times as long
            answer = client.getresponse()
            assert answer.status == http.HTTPStatus.OK, answer.read()
        finally:
            client.close()

    def new_address(self) -> str:
        """Return where a graph may be made: a bucket of its own, since moto lists by looking at all keys."""
        bucket = f"graphs-{uuid4().hex}"
        self.make_bucket(bucket)
        return f"s3://{bucket}/g"

    def storage_options(self, endpoint: str | None = None) -> dict[str, str]:
        """Return what Lance needs to reach the store, or a proxy in front of it."""
        return {
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_region": REGION,
            "aws_endpoint": endpoint or self.endpoint,
            "aws_virtual_hosted_style_request": "false",
            "allow_http": "true",
        }


def _announced_port(process: subprocess.Popen[str]) -> int:
    """Wait for the server to bind and say where; it asks the system for a free port, so none can be taken."""
    assert process.stdout is not None
    # A server that hangs while it starts would otherwise hold the whole test run.
    giving_up = threading.Timer(START_TIMEOUT_S, process.kill)
    giving_up.start()
    try:
        line = process.stdout.readline()
    finally:
        giving_up.cancel()
    if not line.strip().isdigit():
        raise RuntimeError(f"the S3 server did not start; exit code {process.poll()}")
    return int(line)


def one_at_a_time(app: WsgiApp) -> WsgiApp:
    """Serve requests one after the other.

    moto looks for the object and stores it in two steps, so that two racing `If-None-Match: *` writes can
    both succeed. Real stores decide such a race; without this lock, a test of a compare-and-swap would now
    and then accuse innocent code of losing an update.
    """
    lock = threading.Lock()

    def serve(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        # The body is read outside the lock: a client that stalls in the middle of its upload stalls alone.
        environ["wsgi.input"] = io.BytesIO(_body(environ))
        with lock:
            return app(environ, start_response)

    return serve


def _body(environ: Environ) -> bytes:
    source = environ["wsgi.input"]
    if environ.get("wsgi.input_terminated"):
        return bytes(source.read())
    return bytes(source.read(int(environ.get("CONTENT_LENGTH") or 0)))


def _leave_with_parent() -> None:
    """Exit when standard input closes, so that a killed test run leaves no server behind."""
    sys.stdin.read()
    os._exit(0)


def _serve() -> None:
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    # The S3 application alone: the dispatcher for all services lists its source directory on every request.
    app = one_at_a_time(create_backend_app("s3").wsgi_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve()
