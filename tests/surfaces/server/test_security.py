"""What a stranger may try through HTTP: credentials, actions without a right, guesses, paths, bombs.

The application runs in this process, with tokens, JWTs and a policy. What bytes on the wire can do is in
`test_refusals.py`, each form of a bad JWT in `test_jwt.py`, how tokens are kept and compared in
`test_tokens.py`, bodies that do not arrive in `test_work.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.engine.access import Action
from omnigraph.surfaces.server.access import AccessRules, PolicyFiles
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.graphs import ServedGraph, ServedGraphs
from omnigraph.surfaces.server.identity import AccessMode, Identity, StartState
from omnigraph.surfaces.server.jwt import JwtSettings, JwtVerifier
from omnigraph.surfaces.server.limits import Limits
from omnigraph.surfaces.server.settings import ServedAddress, ServerSettings
from omnigraph.surfaces.server.tokens import TokenSource
from omnigraph.surfaces.wire import NDJSON
from tests.support.inside import inside
from tests.support.people import INSERT
from tests.support.queries import folder_of
from tests.surfaces.server.clocks import HandClock
from tests.surfaces.server.conftest import AUDIENCE, ISSUER, NOW, Provider, make_graph
from tests.surfaces.server.every_route import CALL_NAMES, CALLS, STORED, RouteCall, prepare

READ = "query all() { match { $p: Person } return { $p.name } }"
ACTIONS = [action.value for action in Action]
OF_GRAPH = [name for name in ACTIONS if name != "graph_list"]


def _rule(name: str, group: str, actions: list[str]) -> str:
    allow = f"{{ actors: {{ group: {group} }}, actions: [{', '.join(actions)}] }}"
    return f"  - {{ id: {name}, allow: {allow} }}\n"


POLICY = f"""
version: 1
kind: graph
protected_branches: [main]
groups: {{ everything: [root], public: [eve], {", ".join(f"no_{name}: [no-{name}]" for name in OF_GRAPH)} }}
rules:
  - {{ id: public, allow: {{ actors: {{ group: public }}, actions: [read], branch_scope: protected }} }}
"""
POLICY += _rule("root", "everything", OF_GRAPH)
for name in OF_GRAPH:
    POLICY += _rule(f"no-{name}", f"no_{name}", [one for one in OF_GRAPH if one != name])
SERVER_POLICY = """
version: 1
kind: server
groups: { listers: [root] }
rules:
  - { id: list, allow: { actors: { group: listers }, actions: [graph_list, admin] } }
"""
TOKENS: dict[str, Any] = {actor: f"t-{actor}" for actor in ("root", "eve", *(f"no-{one}" for one in ACTIONS))}
LIMITS = Limits(max_load_bytes=1 << 16, longest_wait_seconds=0.05)


@dataclass
class Site:
    """A server in this process, the file of its tokens, and the clock that it goes by."""

    http: httpx.Client
    tokens: Path
    identity: Identity
    clock: HandClock
    secret: str  # the commit of a branch that only some may read

    def ask(self, method: str, path: str, actor: str = "root", **options: Any) -> httpx.Response:
        """Send a request as an actor; paths count from the graph."""
        headers = {"Authorization": f"Bearer {TOKENS[actor]}", **options.pop("headers", {})}
        return self.http.request(method, f"/graphs/kb{path}", headers=headers, **options)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    tokens, jwks, queries = folder / "tokens.json", folder / "jwks.json", folder / "queries"
    tokens.write_text(json.dumps(TOKENS))
    tokens.chmod(0o600)
    jwks.write_text(json.dumps(provider.public("rsa")))
    queries.mkdir()
    clock = HandClock()
    source = TokenSource.from_environment({}, file=tokens, clock=clock)
    identity = Identity(source, JwtVerifier(JwtSettings(ISSUER, AUDIENCE, str(jwks)), clock=clock))
    policies = {"graph.yaml": POLICY, "server.yaml": SERVER_POLICY}
    for name, text in policies.items():
        (folder / name).write_text(text)
    served = ServerSettings(
        graphs=(ServedAddress("kb", "kb.og"),), policies=tuple(folder / name for name in policies)
    )
    rules = AccessRules(StartState(AccessMode.POLICY), identity, PolicyFiles(served))
    with og.connect(make_graph(folder), durability="os") as graph:
        graph.branches.create("secret")
        commit = graph.mutate(INSERT, name="Hidden", age=1, branch="secret").commit_id
        graph.tags.create("v1")
        prepare(graph)
        stored = folder_of(queries, graph, READ, *STORED)
        graphs = ServedGraphs({"kb": ServedGraph("kb", graph, None, stored)})
        app = create_app(ServerSettings(limits=LIMITS), graphs, rules)
        with inside(app, "http://server") as http:
            yield Site(http, tokens, identity, clock, str(commit))


# -- who asks ------------------------------------------------------------------------------------------


CREDENTIALS: dict[str, Callable[[Provider], str | None]] = {
    "none": lambda p: None,
    "an empty one": lambda p: "",
    "another scheme": lambda p: "Basic cm9vdDp0LXJvb3Q=",
    "a wrong token": lambda p: "Bearer t-rooT",
    "the beginning of one": lambda p: "Bearer t-roo",
    "one and more": lambda p: "Bearer t-root t-root",
    "a digest in place of the token": lambda p: "Bearer sha256:" + "0" * 64,
    "a JWT without algorithm": lambda p: "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0.",
    "a JWT of another key": lambda p: f"Bearer {p.sign('other', 'RS256', header={'kid': 'rsa'})}",
    "a JWT of another audience": lambda p: f"Bearer {p.sign('rsa', 'RS256', aud='else')}",
    "a JWT of another issuer": lambda p: f"Bearer {p.sign('rsa', 'RS256', iss='https://else.example')}",
    "a JWT that has ended": lambda p: f"Bearer {p.sign('rsa', 'RS256', exp=NOW - 600)}",
    "a JWT of later": lambda p: f"Bearer {p.sign('rsa', 'RS256', nbf=NOW + 600)}",
    "a huge one": lambda p: f"Bearer {'x' * 100_000}",
}


@pytest.mark.parametrize("name", CREDENTIALS)
def test_every_bad_credential_has_the_same_answer(name: str, site: Site, provider: Provider) -> None:
    header = CREDENTIALS[name](provider)
    for path in ("/branches", "/nothing", "/branches/secret"):
        given = {} if header is None else {"Authorization": header}
        answer = site.http.get(f"/graphs/kb{path}", headers=given)
        first = site.http.get("/graphs/none")
        assert answer.status_code == first.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert {**answer.json(), "request_id": ""} == {**first.json(), "request_id": ""}


def test_a_good_jwt_is_an_actor_of_the_policy(site: Site, provider: Provider) -> None:
    for actor, status in (("root", 200), ("eve", 403)):
        bearer = {"Authorization": f"Bearer {provider.sign('rsa', 'RS256', sub=actor)}"}
        assert site.http.get("/graphs/kb/branches/secret", headers=bearer).status_code == status


@pytest.mark.parametrize("name", ["access_token", "token", "bearer", "authorization", "Authorization"])
def test_a_token_in_the_address_is_none(site: Site, name: str) -> None:
    answer = site.http.get("/graphs/kb/branches", params={name: TOKENS["root"]})
    assert answer.status_code == 401
    assert TOKENS["root"] not in answer.text


def test_a_token_ends_at_its_time_and_when_it_is_revoked(site: Site) -> None:
    def known(token: str) -> bool:
        answer = site.http.get("/graphs/kb/branches", headers={"Authorization": f"Bearer {token}"})
        return bool(answer.status_code == 200)

    before, started = site.tokens.read_text(), site.clock.seconds
    until = {"sha256": sha256(b"until").hexdigest(), "expires": "2027-01-15T08:00:10Z"}
    ends = {"root": ["t-root", "short"], "eve": until}
    try:
        site.tokens.write_text(json.dumps(ends))
        assert site.identity.reload()
        assert [known(token) for token in ("short", "until", "t-no-read")] == [True, True, False]
        site.clock.seconds = 10
        site.tokens.write_text(json.dumps({**ends, "root": "t-root"}))
        assert [known(token) for token in ("t-root", "short", "until")] == [True, False, False]
    finally:
        site.clock.seconds = started + 20
        site.tokens.write_text(before)
        assert site.identity.reload()


# -- what he may -----------------------------------------------------------------------------------------
#
# Of the calls in `every_route.py`, each is refused to the actor who may do everything but what it asks for
# first, and not to the one who may do everything.


@pytest.mark.parametrize("call", CALLS, ids=CALL_NAMES)
def test_a_call_is_refused_to_who_may_do_everything_else(call: RouteCall, site: Site) -> None:
    def answer(actor: str, path: str = call.path) -> httpx.Response:
        return site.ask(call.method, path, actor, **call.options())

    denied = answer(f"no-{call.action}")
    if call.action == "invoke_query":  # a query that one may not call is as one that there is not
        name = call.path.split("/")[2]
        unknown = answer("root", call.path.replace(name, "nil")).json()
        told = json.dumps({**unknown, "request_id": ""}).replace("nil", name)
        assert {**denied.json(), "request_id": ""} == json.loads(told)
        return
    assert denied.status_code == 403, denied.text
    assert denied.json()["code"] == "forbidden"
    assert denied.json()["details"]["action"] == call.action
    assert answer("root").status_code not in (401, 403)


def test_a_tag_is_taken_away_by_who_may_change_the_graph(site: Site) -> None:
    denied = site.ask("DELETE", "/tags/v1", "no-change")  # who reads first, and may
    assert (denied.status_code, denied.json()["details"]["action"]) == (403, "change")


@pytest.mark.parametrize("path", ["/graphs", "/metrics"])
def test_what_is_of_the_server_is_for_those_whom_its_policy_names(site: Site, path: str) -> None:
    def status(actor: str) -> int:
        bearer = {"Authorization": f"Bearer {TOKENS[actor]}"}
        return int(site.http.get(path, headers=bearer).status_code)

    assert (status("root"), status("eve")) == (200, 403)


# -- what he may not know ----------------------------------------------------------------------------------


NOBODY = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
GUESSES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "rows of a branch": ("POST", "/query", {"json": {"query": READ, "branch": "BRANCH"}}),
    "rows of a commit": ("POST", "/query", {"json": {"query": READ, "snapshot": "COMMIT"}}),
    "a branch": ("GET", "/branches/BRANCH", {}),
    "commits of a branch": ("GET", "/commits?branch=BRANCH", {}),
    "a commit": ("GET", "/commits/COMMIT", {}),
    "what a commit changed": ("GET", "/commits/COMMIT/changes", {}),
    "a difference of branches": ("GET", "/branches/main/diff/BRANCH", {}),
    "a difference of commits": ("GET", "/diff?from=COMMIT", {}),
    "a feed": ("GET", "/changes?branch=BRANCH", {}),
    "an entity": ("GET", "/entities/Person/Hidden?branch=BRANCH", {}),
    "an entity of a commit": ("GET", "/entities/Person/Hidden?snapshot=COMMIT", {}),
    "a schema": ("GET", "/schema?branch=BRANCH", {}),
    "counts": ("GET", "/snapshot?branch=BRANCH", {}),
    "rows of a type": ("GET", "/rows/node/Person?branch=BRANCH", {}),
    "a write": ("POST", "/mutate", {"json": {"query": INSERT, "branch": "BRANCH"}}),
    "a merge": ("POST", "/branches/merge", {"json": {"source": "BRANCH"}}),
    "a new branch": ("POST", "/branches", {"json": {"name": "x", "from": "BRANCH"}}),
    "the name of a branch": ("POST", "/branches", {"json": {"name": "BRANCH"}}),
    "an end": ("DELETE", "/branches/BRANCH", {}),
    "an export": ("POST", "/export", {"json": {"branch": "BRANCH"}}),
    "a receipt": ("GET", "/receipts/k?branch=BRANCH", {}),
    "a stored query": ("POST", "/queries/all", {"json": {"branch": "BRANCH"}}),
}


@pytest.mark.parametrize("name", GUESSES)
def test_a_refusal_does_not_tell_what_there_is(name: str, site: Site) -> None:
    method, path, options = GUESSES[name]
    answers = []
    for branch, commit in (("secret", site.secret), ("nobody", NOBODY)):

        def told(text: str, branch: str = branch, commit: str = commit) -> str:
            return text.replace("BRANCH", branch).replace("COMMIT", commit)

        body = None if "json" not in options else json.loads(told(json.dumps(options["json"])))
        answer = site.ask(method, told(path), "eve", json=body)
        shown = json.dumps({**answer.json(), "request_id": ""})
        answers.append((answer.status_code, shown.replace(branch, "BRANCH").replace(commit, "COMMIT")))
    assert answers[0] == answers[1]
    assert answers[0][0] in (403, 404)


def test_histories_have_what_may_be_read_only(site: Site) -> None:
    """Names of branches are read with `main`, as the page about policies says; what is on them is not."""
    for path in ("/commits", "/changes?start=beginning", "/tags"):
        answer = site.ask("GET", path, "eve")
        assert answer.status_code == 200
        assert site.secret not in answer.text
        assert "Hidden" not in answer.text


# -- names and headers -----------------------------------------------------------------------------------


TRICKS = [
    *("..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2e%2e%2f", "..%5c..%5c", "%c0%ae%c0%ae%2f", "a%00b", "%00"),
    *("kb%0d%0aSet-Cookie:%20a=b", "kb%0aX", "~root", "__system", "main~1", "%ff%fe", "con", "%F0%9F%92%A9"),
    *("kb%2f..%2fkb", "kb;x=1", "kb%3f", "a" * 3_000, "%25252e", "$(id)", "%7B%7B7*7%7D%7D", "'--"),
]


@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize("path", ["/graphs/{}/branches", "/graphs/kb/branches/{}", "/graphs/kb/tags/{}"])
def test_a_strange_name_is_refused_and_goes_nowhere(site: Site, path: str, trick: str) -> None:
    bearer = {"Authorization": f"Bearer {TOKENS['root']}"}
    answer = site.http.get(path.format(trick), headers=bearer)
    # httpx and every proxy resolve a bare `..`: what is left of the path is another, honest one.
    assert answer.status_code in ((400, 404) if trick not in ("..", "%2e%2e") else (200, 400, 404))
    assert "set-cookie" not in answer.headers
    assert "passwd" not in answer.text or "root:" not in answer.text
    for header, value in answer.headers.items():
        assert value.isprintable(), header


@pytest.mark.parametrize("header", ["X-Request-Id", "Idempotency-Key", "If-Commit", "X-Forwarded-For"])
@pytest.mark.parametrize("value", [b"a\x0bb", b"a\x00b", b"\xff\xfe", b"a" * 5_000, b"a\tSet-Cookie: b"])
def test_what_a_header_brings_is_not_sent_back(site: Site, header: str, value: bytes) -> None:
    bearer = ("Authorization", f"Bearer {TOKENS['root']}".encode())
    body = json.dumps({"query": INSERT, "params": {"name": "Ada", "age": 999}}).encode()
    headers: list[tuple[Any, Any]] = [bearer, ("Content-Type", b"application/json"), (header, value)]
    answer = site.http.post("/graphs/kb/mutate", content=body, headers=headers)
    assert answer.status_code == 400
    assert value not in [sent for _, sent in answer.headers.raw]
    assert len(answer.headers["X-Request-Id"]) == 26


def test_pages_of_an_origin_that_is_named_are_answered_and_no_other(tmp_path: Path) -> None:
    with og.connect(make_graph(tmp_path), durability="os") as graph:
        app = create_app(ServerSettings(cors=("https://ours.example",)), {"kb": graph})
        with inside(app, "http://server") as http:
            origins = {"https://ours.example": True, "https://ours.example.evil.example": False}
            for origin, allowed in origins.items():
                asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
                for answer in (
                    http.options("/graphs/kb/query", headers=asked),
                    http.get("/graphs/kb/branches", headers={"Origin": origin}),
                ):
                    assert (answer.headers.get("access-control-allow-origin") == origin) is allowed
                    assert "access-control-allow-credentials" not in answer.headers


# -- what grows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy", "none"])
def test_a_parquet_file_that_holds_much_more_than_it_is_long_is_refused(site: Site, codec: str) -> None:
    sink = pa.BufferOutputStream()
    names = pa.array(["x" * 100] * 200_000).dictionary_encode()
    pq.write_table(pa.table({"name": names}), sink, compression=codec)
    bomb = sink.getvalue().to_pybytes()
    assert len(bomb) < LIMITS.max_load_bytes
    kind = {"Content-Type": "application/vnd.apache.parquet"}
    answer = site.ask("POST", "/load?type=Person", content=bomb, headers=kind)
    assert (answer.status_code, answer.json()["code"]) == (413, "resource_limit")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity, gzip", "x"])
def test_a_body_that_is_to_be_unpacked_is_refused_before_it_is(site: Site, encoding: str) -> None:
    for path, kind in (("/query", "application/json"), ("/load/ndjson", NDJSON)):
        headers = {"Content-Type": kind, "Content-Encoding": encoding}
        answer = site.ask("POST", path, content=b"\x1f\x8b" + b"\0" * 100, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media")
