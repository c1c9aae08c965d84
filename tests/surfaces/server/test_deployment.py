"""The examples in `deploy/`: nginx with TLS in front of a real server, and the unit as systemd reads it.

Each runs where its program is installed (Debian: `nginx-light`, `systemd`), and is skipped elsewhere. No test
builds the container.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from tests.support.served import PATIENCE, Served, serving

DEPLOY = Path(__file__).parents[3] / "deploy"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
SYSTEMD = shutil.which("systemd-analyze")
AROUND = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/site.conf;
}}
"""


def free_port() -> int:
    """Return a port of loopback that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def proxied(folder: Path, served: Served) -> Iterator[tuple[str, Path]]:
    """Run nginx with the site of `deploy/`, its names changed to what there is; yield address and CA."""
    key, certificate, port = folder / "key.pem", folder / "certificate.pem", free_port()
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-keyout", str(key)]
    subprocess.run([*made, "-out", str(certificate), *names], check=True, capture_output=True)
    site = (DEPLOY / "nginx.conf").read_text()
    changes = {
        "listen 443 ": f"listen 127.0.0.1:{port} ",
        "graphs.example.org;": "localhost;",
        "/etc/ssl/graphs.example.org.pem": str(certificate),
        "/etc/ssl/private/graphs.example.org.key": str(key),
        "http://127.0.0.1:8080": served.url,
    }
    for old, new in changes.items():
        assert old in site
        site = site.replace(old, new)
    (folder / "site.conf").write_text(site)
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder))
    nginx = subprocess.Popen([str(NGINX), "-p", str(folder), "-c", str(folder / "nginx.conf")])
    try:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and nginx.poll() is None:
            with socket.socket() as sock:
                if sock.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"https://localhost:{port}", certificate
    finally:
        nginx.terminate()
        nginx.wait(PATIENCE)


@pytest.mark.slow
@pytest.mark.skipif(NGINX is None or shutil.which("openssl") is None, reason="needs nginx and openssl")
def test_a_server_behind_the_proxy_answers_as_it_does_alone(tmp_path: Path) -> None:
    with og.init(tmp_path / "kb.og", "node Person { name: String @key }", durability="os") as graph:
        graph.branches.create("etl/run-1")
    with (
        serving(tmp_path / "kb.og", "--log-level", "info") as served,
        proxied(tmp_path, served) as (address, certificate),
    ):
        trusted = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=address, verify=trusted, trust_env=False) as http:
            add = {"query": 'query q() { insert Person { name: "Ada" } }', "branch": "etl/run-1"}
            made = http.post("/mutate", json=add, headers={"Idempotency-Key": "k"})
            again = http.post("/mutate", json=add, headers={"Idempotency-Key": "k"})
            assert (made.status_code, again.headers["idempotency-replayed"]) == (200, "true")
            assert made.headers["x-request-id"] in served.log, "the id that the proxy gave it"

            branch = http.get("/branches/etl%2Frun-1")
            assert branch.json()["name"] == "etl/run-1", "a name with a slash arrives as one segment"

            lines = http.post("/export", json={"branch": "etl/run-1"}).text.splitlines()
            assert [json.loads(line)["data"]["name"] for line in lines] == ["Ada"]
            assert http.get("/metrics").status_code == 404
            assert httpx.get(f"{served.url}/metrics", trust_env=False).status_code == 200

            feed = {"Accept": "text/event-stream"}
            with http.stream("GET", "/changes?start=beginning&branch=etl%2Frun-1", headers=feed) as events:
                first = next(line for line in events.iter_lines() if line.startswith("data:"))
            assert "Ada" in first, "an event arrives while the stream is open"


@pytest.mark.skipif(SYSTEMD is None, reason="needs systemd-analyze")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = (DEPLOY / "omnigraph.service").read_text()
    program = shutil.which("true")
    # What it starts is installed where the unit runs, and not here.
    there = re.sub(r"^ExecStart=\S+", f"ExecStart={program}", unit, flags=re.MULTILINE)
    (tmp_path / "omnigraph.service").write_text(there)
    command = [str(SYSTEMD), "verify", "--man=no", str(tmp_path / "omnigraph.service")]
    said = subprocess.run(command, capture_output=True, text=True, check=False)

    ours = [line for line in said.stderr.splitlines() if "omnigraph.service" in line]
    assert (said.returncode, ours) == (0, [])
