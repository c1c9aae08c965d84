"""No secret leaves a server: not in logs, answers, metrics or core files; data of callers is in no log."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jwt
import pytest

from tests.support.people import INSERT
from tests.support.served import Served, serving
from tests.surfaces.server.conftest import AUDIENCE, ISSUER, Provider, make_graph

TOKEN, OTHER_TOKEN, WRONG_TOKEN = "token-of-ada-4711", "token-of-bob-4712", "token-that-is-wrong-4713"
API_KEY, STORAGE_KEY, IN_ADDRESS = "sk-provider-4714", "storage-secret-4715", "address-password-4716"
DATA = "a-private-name-4717"
SECRETS = (TOKEN, OTHER_TOKEN, WRONG_TOKEN, API_KEY, STORAGE_KEY, IN_ADDRESS)
POLICY = """
version: 1
groups: { people: [ada] }
rules:
  - id: all
    allow: { actors: { group: people }, actions: [read, change], branch_scope: any }
  - id: administer
    allow: { actors: { group: people }, actions: [admin, invoke_query] }
"""


@dataclass
class Told:
    """Everything that a server gave away."""

    log: str
    answers: str
    of_others: str  # answers to requests that did not contain the data themselves
    limits: str
    signed: str  # a JWT that was accepted


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Told]:
    folder = tmp_path_factory.mktemp("secrets")
    place = make_graph(folder)
    config = {
        "graphs": {
            "kb": {"uri": str(place)},
            "gone": {"uri": f"s3://user:{IN_ADDRESS}@bucket/graph.og"},
        }
    }
    files = {
        "tokens.json": json.dumps({"ada": TOKEN, "bob": OTHER_TOKEN}),
        "policy.yaml": POLICY,
        "keys.json": json.dumps(provider.public()),
        "project.yaml": json.dumps(config),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    environment = {
        "OMNIGRAPH_SERVER_JWT_ISSUER": ISSUER,
        "OMNIGRAPH_SERVER_JWT_AUDIENCE": AUDIENCE,
        "OMNIGRAPH_SERVER_JWT_JWKS": str(folder / "keys.json"),
        "OMNIGRAPH_EMBED_PROVIDER": "openai",
        "OMNIGRAPH_EMBED_BASE_URL": "http://127.0.0.1:9/",
        "OMNIGRAPH_EMBED_DEADLINE_MS": "100",
        "OPENAI_API_KEY": API_KEY,
        "AWS_SECRET_ACCESS_KEY": STORAGE_KEY,
        "AWS_ACCESS_KEY_ID": "key-id",
        "AWS_REGION": "here",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
    }
    signed = provider.sign("rsa", "RS256", exp=4_000_000_000, iat=1_600_000_000)
    arguments = ["--config", str(folder / "project.yaml"), "--tokens", str(folder / "tokens.json")]
    arguments += ["--policy", str(folder / "policy.yaml"), "--log-level", "debug", "--log-format", "json"]
    with serving(None, *arguments, authenticated=True, environment=environment) as server:
        answers, of_others = asked(server, folder, signed)
        limits = Path(f"/proc/{server.process.pid}/limits").read_text()
        assert server.stop() == 0
        yield Told(server.log, answers, of_others, limits, signed)


def asked(server: Served, folder: Path, signed: str) -> tuple[str, str]:
    """Ask in every way that has a secret in it; return all answers, and those to others."""
    add = {"query": INSERT, "params": {"name": DATA, "age": 1}}
    read = {"query": f'query one() {{ match {{ $p: Person {{ name: "{DATA}" }} }} return {{ $p.age }} }}'}
    near = {"query": 'query n() { match { $p: Person } return { $p.name } order { nearest($p.name, "x") } }'}
    broken = {"query": f"quarry {DATA}"}
    with server.client() as http:
        kept = [
            http.get("/branches", headers={"Authorization": header})
            for header in (f"Bearer {WRONG_TOKEN}", f"Basic {TOKEN}", f"Bearer  {TOKEN}", signed)
        ]
        kept.append(http.get("/branches", params={"access_token": TOKEN, "token": OTHER_TOKEN}))
        http.headers["Authorization"] = f"Bearer {TOKEN}"
        kept += [http.get(path, params={"token": OTHER_TOKEN}) for path in ("/branches", "/schema")]
        kept.append(http.get("/branches", headers={"Authorization": f"Bearer {signed}"}))
        kept += [http.post(path, json=add) for path in ("/mutate", "/mutate", "/change")]
        kept += [http.post("/query", json=body) for body in (read, near, broken)]
        kept.append(http.get(f"/entities/Person/{DATA}"))
        kept.append(
            http.post(
                "/load/ndjson",
                content=f"{DATA} {{".encode(),
                headers={"Content-Type": "application/x-ndjson"},
            )
        )
        kept.append(http.post("/mutate", json={**add, "password": OTHER_TOKEN}))
        kept.append(http.get("/branches/none"))
        (folder / "tokens.json").write_text(f'{{"ada": "{TOKEN}", "bob": {OTHER_TOKEN}')  # broken
        server.process.send_signal(signal.SIGHUP)
        while "the earlier ones stay" not in server.log:
            time.sleep(0.1)
        others = [http.get("/branches"), http.get("/storage")]
        others += [
            http.get(f"{server.url}{path}") for path in ("/metrics", "/readyz", "/graphs", "/openapi.json")
        ]
        others.append(http.get(f"{server.url}/graphs/gone/branches"))
    statuses = {answer.status_code for answer in kept + others}
    assert {200, 400, 401, 404, 503} <= statuses <= {200, 400, 401, 403, 404, 503}
    return tuple("\n".join(f"{one.headers}\n{one.text}" for one in some) for some in (kept + others, others))  # type: ignore[return-value]


def hidden(secret: str) -> list[str]:
    """Return a secret in the forms in which it might be written."""
    return [secret, hashlib.sha256(secret.encode()).hexdigest()]


@pytest.mark.slow
@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_is_in_a_log_an_answer_or_the_metrics(told: Told, secret: str) -> None:
    for form in hidden(secret):
        assert form not in told.log
        assert form not in told.answers


@pytest.mark.slow
def test_neither_is_a_jwt_nor_what_it_is_signed_with(told: Told) -> None:
    assert jwt.decode(told.signed, options={"verify_signature": False})["sub"] == "ada"
    for part in (told.signed, told.signed.rpartition(".")[2]):
        assert part not in told.log + told.answers


@pytest.mark.slow
def test_data_of_callers_is_in_no_log_and_no_metric(told: Told) -> None:
    assert DATA not in told.log
    assert DATA not in told.of_others


@pytest.mark.slow
def test_everything_was_logged_that_a_reader_of_the_log_needs(told: Told) -> None:
    records = [json.loads(line) for line in told.log.splitlines()]
    requests = [record for record in records if record["logger"] == "omnigraph.access"]
    assert {"request_id", "actor", "graph", "route", "status", "ms"} <= set().union(*requests)
    assert {record["route"] for record in requests} >= {"/mutate", "/query", "/entities/{type}/{id}"}
    decisions = [record for record in records if record["logger"] == "omnigraph.audit"]
    assert {(one["actor"], one["action"], one["decision"]) for one in decisions} >= {
        ("ada", "change", "allow"),
        ("ada", "read", "allow"),
    }
    assert any("the earlier ones stay" in record["message"] for record in records)


@pytest.mark.slow
def test_a_crash_leaves_no_memory_on_disk(told: Told) -> None:
    (line,) = [line for line in told.limits.splitlines() if line.startswith("Max core file size")]
    assert line.split()[4:6] == ["0", "0"]
