"""Every error code is raised for real: a table of codes with the shortest way to meet each."""

from __future__ import annotations

import errno
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import httpx
import lance
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.cancellation import Cancellation, cancelled_by
from omnigraph.base.errors import GraphError, PermissionDenied
from omnigraph.engine.access import Action
from omnigraph.engine.open import connect
from omnigraph.execution.memory import Memory
from omnigraph.pipeline.session import check_java
from omnigraph.storage.durability import Syncer, armed
from omnigraph.storage.location import LocalObjects
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.store import GraphStore
from omnigraph.surfaces.cli.support.deadline import DeadlineProgress, within
from omnigraph.surfaces.client.failures import failure_of
from omnigraph.surfaces.server.access import read_access
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.limits import Limits
from omnigraph.surfaces.server.settings import ServerSettings
from tests.docs.test_errors_page import INTERNAL, all_errors
from tests.storage.bare import change_map
from tests.support.desk import Desk
from tests.support.inside import inside

SCHEMA = "node Person { slug: String @key  age: I32? }\nedge Knows: Person -> Person\n"
WIDER = SCHEMA.replace("I32", "I64")
ADD = "query add($s: String) { insert Person { slug: $s, age: 1 } }"
SET = 'query set($n: I32) { update Person set { age: $n } where slug = "a" }'
ALL = "query all() { match { $p: Person } return { $p.slug } }"
PAIRS = "query pairs() { match { $p: Person  $q: Person } return { $p.slug, $q.slug } }"
ROOT = Path(__file__).parents[2]

BASES = {  # never raised themselves: what their subclasses have in common, to be caught by
    "conflict",
    "internal",
}
ON_SPARK = {  # code: the test that starts Spark for it, and what it says there
    "pipeline_failed": ("tests/spark/test_declared_run.py", "text, PipelineFailed)"),
}
BASE_CLASSES = {"ConflictError", "FormatMismatch", "GraphError", "SourceError"}
ELSEWHERE = {  # class that shares its code with others: the test that raises it, and what it says there
    "DeadlineExceeded": ("tests/client/test_transport.py", "pytest.raises((Unavailable, DeadlineExceeded))"),
    "ExpectationFailed": ("tests/spark/test_declared_run.py", "text, ExpectationFailed)"),
    "NotComputable": ("tests/execution/functions/test_kernels.py", "pytest.raises(NotComputable)"),
    "NoCanonicalText": ("tests/catalog/test_keys.py", "pytest.raises(NoCanonicalText)"),
    "PolicyEvaluationError": ("tests/surfaces/policy/test_policy.py", "pytest.raises(PolicyEvaluationError)"),
    "Unfit": ("tests/catalog/query/test_mutations.py", "pytest.raises(Unfit,"),
}


@dataclass
class Ground:
    """A graph with one row, an empty folder and the command line."""

    graph: Graph
    folder: Path
    desk: Desk
    patch: pytest.MonkeyPatch

    @property
    def other(self) -> Graph:
        """The same graph, as another process has it."""
        return og.connect(self.graph.uri, durability="os")

    def load(self, *slugs: str, **options: Any) -> Any:
        return self.graph.load(
            [{"type": "Person", "data": {"slug": slug}} for slug in slugs],
            **{"mode": "append", **options},
        )

    def stamp(self, value: str | None) -> None:
        """Give the newest version another format."""
        change_map(lance.dataset(f"{self.graph.uri}/__manifest"), {"omnigraph.format": value})
        og.connect(self.graph.uri)

    def command(self, *arguments: str) -> NoReturn:
        """Run a command and raise what it reports."""
        ran = self.desk.run(*arguments, "--json")
        raise _Reported(ran.document["code"])


class _Reported(Exception):
    """The command said so."""


@pytest.fixture
def ground(tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    with og.connect(desk.started(), durability="os") as graph:
        yield Ground(graph, tmp_path, desk, monkeypatch)


WAYS: dict[str, Callable[[Ground], object]] = {}


def way(*codes: str) -> Callable[[Callable[[Ground], object]], Callable[[Ground], object]]:
    """Put a function into the table."""

    def put(function: Callable[[Ground], object]) -> Callable[[Ground], object]:
        assert WAYS.keys().isdisjoint(codes)
        WAYS.update(dict.fromkeys(codes, function))
        return function

    return put


def _stopped(on: Ground) -> object:
    stopped = Cancellation()
    stopped.cancel("nobody waits for it")
    with cancelled_by(stopped):
        return on.graph.query(PAIRS)


# -- one call is enough --------------------------------------------------------------------------------

WAYS |= {
    "bad_argument": lambda on: on.graph.query(7),  # type: ignore[arg-type]
    "bad_request": lambda on: on.graph.cleanup(),
    "compile_error": lambda on: on.graph.query("quarry"),
    "no_graph_to_serve": lambda on: on.command(
        "serve", str(on.folder / "none.og"), "--unauthenticated", "--bind", "127.0.0.1:0"
    ),
    "cancelled": lambda on: _stopped(on),
    "query_not_found": lambda on: on.graph.query(ALL, query_name="none"),
    "bad_branch_name": lambda on: on.graph.branches.create("x" * 1_000),
    "bad_tag_name": lambda on: on.graph.tags.create("main~1"),
    "reserved_branch": lambda on: on.graph.branches.create("__mine"),
    "bad_moment": lambda on: on.graph.at("x" * 1_000),
    "ambiguous_commit": lambda on: on.graph.at(on.graph.commits.list()[0].id[:6]),
    "parentless_commit": lambda on: on.graph.changes.of(on.graph.commits.list()[-1].id),
    "policy_invalid": lambda on: og.Policy.read("version: 2\n"),
    "past_state": lambda on: on.graph.at("main~1").mutate(ADD, s="b"),
    "cursor_rejected": lambda on: on.graph.changes("nothing of ours"),
    "destination_not_empty": lambda on: on.graph.export(on.folder),
    "java_missing": lambda on: check_java({"PATH": str(on.folder)}),
    "graph_not_found": lambda on: og.connect(on.folder / "none.og"),
    "branch_not_found": lambda on: on.graph.branch("none"),
    "tag_not_found": lambda on: on.graph.tags.get("none"),
    "commit_not_found": lambda on: on.graph.at("0" * 26),
    "type_not_found": lambda on: on.graph.nodes("None"),
    "entity_not_found": lambda on: on.command("entity", "history", on.graph.uri, "Person", "none"),
    "input_not_found": lambda on: on.graph.load(on.folder / "none.jsonl", mode="append"),
    "constraint_violation": lambda on: on.load("b", "b"),
    "schema_unsupported": lambda on: on.graph.schema.apply(SCHEMA.replace("I32", "String")),
    "key_conflict": lambda on: on.load("a"),
    "precondition_failed": lambda on: on.graph.mutate(ADD, s="b", if_commit=on.graph.commits.list()[1].id),
    "already_initialized": lambda on: og.init(on.graph.uri, SCHEMA),
    "storage": lambda on: og.connect(on.folder / ("x" * 300)),
    "format_too_new": lambda on: on.stamp("99999"),
    "format_too_old": lambda on: on.stamp("0"),
    "format_unreadable": lambda on: on.stamp(None),
}


# -- something comes before it -------------------------------------------------------------------------


@way("unreadable_input")
def _(on: Ground) -> object:
    (on.folder / "cut.parquet").write_bytes(b"PAR1")
    return on.graph.load(on.folder / "cut.parquet", mode="append", type="Person")


@way("resource_limit")
def _(on: Ground) -> object:
    on.load(*(f"a person of a rather long name {number}" for number in range(2_000)))
    return on.graph.query(PAIRS, memory_bytes=1 << 20)


@way("too_broad")
def _(on: Ground) -> object:
    with connect(on.graph.uri, strict=True) as graph:
        return graph.query(ALL)


DOCUMENTS = 'node Doc { slug: String @key  text: String  vec: Vector(4)? @embed("text") }'


@way("embedding_refused")
def _(on: Ground) -> object:
    on.patch.delenv("OPENAI_API_KEY", raising=False)
    with og.init(None, DOCUMENTS, embedding="openai") as graph:
        graph.load([{"type": "Doc", "data": {"slug": "a", "text": "b"}}], mode="append")
        return graph.embed()


@way("embedding_unavailable")
def _(on: Ground) -> object:
    on.patch.setenv("OMNIGRAPH_EMBED_RETRY_ATTEMPTS", "1")
    on.patch.setenv("OMNIGRAPH_CACHE", str(on.folder / "cache"))
    with og.init(None, DOCUMENTS, embedding={"base_url": "http://127.0.0.1:1"}) as graph:
        graph.load([{"type": "Doc", "data": {"slug": "a", "text": "b"}}], mode="append")
        return graph.embed()


@way("graph_closed")
def _(on: Ground) -> object:
    on.graph.close()
    return on.graph.query(ALL)


@way("branch_exists")
def _(on: Ground) -> object:
    on.graph.branches.create("b")
    return on.graph.branches.create("b")


@way("tag_exists")
def _(on: Ground) -> object:
    on.graph.tags.create("v1")
    return on.graph.tags.create("v1")


@way("branch_has_descendants")
def _(on: Ground) -> object:
    on.graph.branches.create("b")
    on.graph.branches.create("c", from_="b")
    return on.graph.branches.delete("b")


@way("branch_has_tags")
def _(on: Ground) -> object:
    on.graph.branches.create("b")
    on.load("b", branch="b")
    on.graph.tags.create("v1", branch="b")
    return on.graph.branches.delete("b")


@way("idempotency_mismatch")
def _(on: Ground) -> object:
    on.load("b", idempotency_key="k")
    return on.load("c", idempotency_key="k")


@way("history_reclaimed")
def _(on: Ground) -> object:
    first = on.graph.commits.list()[-1].id
    on.load("b")
    on.graph.cleanup(keep=0, grace="0s", dry_run=False)
    return on.graph.nodes("Person", at=first)


@way("change_feed_gap")
def _(on: Ground) -> object:
    cursor = on.graph.changes().cursor
    on.load("b")
    on.load("c")
    on.graph.cleanup(keep=0, grace="0s", dry_run=False)
    return on.graph.changes(cursor)


@way("integrity")
def _(on: Ground) -> object:
    for file in Path(on.graph.uri).glob("__manifest/_versions/*"):
        file.unlink()
    return og.connect(on.graph.uri)


@way("destination_refused")
def _(on: Ground) -> object:
    og.init(on.folder / "other.og", SCHEMA, durability="os").close()
    return on.graph.backup(on.folder / "other.og")


@way("merge_conflict")
def _(on: Ground) -> object:
    on.graph.branches.create("b")
    on.graph.mutate(SET, n=5, branch="b")
    on.graph.mutate(SET, n=6)
    return on.graph.merge("b")


@way("schema_conflict")
def _(on: Ground) -> object:
    on.graph.branches.create("b")
    on.graph.schema.apply(SCHEMA + "node Town { name: String @key }", branch="b")
    on.graph.schema.apply(SCHEMA + "node Town { title: String @key }")
    return on.graph.merge("b")


@way("store_unsupported")
def _(on: Ground) -> object:
    on.patch.setattr(LocalObjects, "create", lambda self, key, data: True)  # as such a store answers
    return og.init(on.folder / "new.og", SCHEMA)


# -- somebody else comes in between ----------------------------------------------------------------------


def _first(act: Callable[[], object]) -> Callable[[], None]:
    """Return an action that acts when it is met first."""
    left = [act]

    def once() -> None:
        if left:
            left.pop()()

    return once


@way("read_set_conflict")
def _(on: Ground) -> object:
    with on.other as other, armed({"publish.before": _first(lambda: other.mutate(ADD, s="late"))}):
        return on.graph.schema.apply(WIDER)


@way("publish_contention")
def _(on: Ground) -> object:
    def lose() -> None:
        if not busy:
            busy.append(True)
            other.load([{"edge": "Knows", "from": "a", "to": "a"}], mode="append")
            busy.clear()

    busy: list[bool] = []
    store = GraphStore.open(on.graph.uri, durability="os", retry=RetryPolicy(attempts=2))
    with on.other as other, Graph(store) as impatient, armed({"publish.before": lose}):
        return impatient.mutate(ADD, s="late")


@way("staged_files_gone")
def _(on: Ground) -> object:
    def clean() -> None:
        other.cleanup(keep=0, grace="0s", dry_run=False)

    with on.other as other, armed({"publish.before": _first(clean)}):
        return on.graph.schema.apply(SCHEMA + "node Town { name: String @key }")


@way("copy_interrupted")
def _(on: Ground) -> object:
    def sweep() -> None:
        on.graph.store.raise_floor("main", 1)
        log = next(Path(on.graph.uri).glob("__checksums/*/*"))
        log.write_bytes(log.read_bytes() + b"one more\n")  # so that there is always a file to copy

    with armed({"copy_file.before": sweep}):
        return on.graph.backup(on.folder / "copy.og", durability="os")


@way("outcome_unknown")
def _(on: Ground) -> object:
    def lose_the_disk() -> None:
        manifest = Path(on.graph.uri, "__manifest")
        manifest.rename(manifest.with_name("elsewhere"))
        manifest.write_text("no folder")
        raise OSError("the disk is gone")

    with armed({"publish.before": _first(lose_the_disk)}):
        return on.graph.mutate(SET, n=7)


# -- only commands raise it ----------------------------------------------------------------------------


@way("confirmation_required")
def _(on: Ground) -> object:
    on.command("cleanup", "s3://nowhere/kb", "--keep", "0", "--confirm")


@way("config_invalid")
def _(on: Ground) -> object:
    on.desk.file("omnigraph.yaml", "graphs: [\n")
    on.command("schema", "show", on.graph.uri)


@way("pipeline_invalid")
def _(on: Ground) -> object:
    on.command("pipeline", "run", on.desk.file("p.yaml", "sources: 7\n"), "--graph", on.graph.uri)


@way("not_found")
def _(on: Ground) -> object:
    on.desk.file("omnigraph.yaml", "graphs: {}\n")
    on.command("alias", "none")


@way("forbidden")
def _(on: Ground) -> object:
    class NobodyMay:
        def check(self, action: Action, *, branch: str | None = None, target: str | None = None) -> None:
            raise PermissionDenied("nobody may", action=action.value, resource=on.graph.uri)

    return on.graph.acting("ada", NobodyMay()).query(ALL)


@way("timeout")
def _(on: Ground) -> object:
    with armed({"publish.before": _first(lambda: time.sleep(2))}):
        text = on.desk.file("q.gq", SET)
        on.command("mutate", on.graph.uri, "--query", text, "--param", "n=3", "--timeout", "1s")


# -- a server says so ----------------------------------------------------------------------------------


def _server(on: Ground, settings: ServerSettings) -> AbstractContextManager[httpx.Client]:
    """Run a server in this process, without a socket."""
    return inside(create_app(settings, {"kb": on.graph}, read_access(settings)))


def _told(answer: httpx.Response) -> NoReturn:
    """Raise what a client makes of an answer."""
    raise failure_of(answer.status_code, answer.json(), answer.headers["X-Request-Id"])


OPEN = ServerSettings(unauthenticated=True)


def _asked(on: Ground, method: str, path: str, settings: ServerSettings = OPEN, **request: Any) -> NoReturn:
    with _server(on, settings) as client:
        _told(client.request(method, path, **request))


@way("method_not_allowed")
def _(on: Ground) -> object:
    _asked(on, "DELETE", "/query")


@way("unsupported_media")
def _(on: Ground) -> object:
    _asked(on, "POST", "/query", content=ALL, headers={"Content-Type": "text/plain"})


@way("unauthenticated")
def _(on: Ground) -> object:
    known = ServerSettings(environment={"OMNIGRAPH_SERVER_BEARER_TOKEN": "t" * 32})
    _asked(on, "POST", "/query", known, json={"query": ALL})


@way("too_many_requests")
def _(on: Ground) -> object:
    """A write is sent while another one of the same actor is held up."""
    begun, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert may_end.wait(60)

    settings = ServerSettings(unauthenticated=True, limits=Limits(actor_writes=1))
    with (
        armed({"publish.before": _first(hold)}),
        _server(on, settings) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(client.post, "/mutate", json={"query": SET, "params": {"n": 1}})
        assert begun.wait(60)
        try:
            _told(client.post("/mutate", json={"query": SET, "params": {"n": 2}}))
        finally:
            may_end.set()
            assert first.result().status_code == 200


@way("unavailable")
def _(on: Ground) -> object:
    return og.connect("http://127.0.0.1:1/graphs/kb", timeout=2).query(ALL)


# -- classes that share a code with others -------------------------------------------------------------


OF_CLASS: dict[str, Callable[[Ground], object]] = {
    "BadParameters": lambda on: on.graph.query(ALL, none=1),
    "InvalidRequest": lambda on: on.graph.cleanup(),
    "ConstraintViolation": lambda on: on.load("b", "b"),
    "QueryError": lambda on: on.graph.query("quarry"),
    "SchemaError": lambda on: og.init(on.folder / "new.og", "nod"),
    "UnknownType": lambda on: on.graph.nodes("None"),
    "IntegrityError": WAYS["integrity"],
    "LimitExceeded": WAYS["resource_limit"],
    "OpenFailed": lambda on: on.graph.store.opener.latest("__none"),
    "StorageDenied": lambda on: _without_access(on),
    "StorageError": lambda on: og.connect(on.folder / ("x" * 300)),
}


def of_class(name: str) -> Callable[[Callable[[Ground], object]], None]:
    """Put a function into the table of classes."""
    return lambda function: OF_CLASS.update({name: function})


@of_class("TypeNotFound")
def _(on: Ground) -> object:
    before = on.graph.commits.list()[0].id
    on.graph.schema.apply(SCHEMA + "node Town { name: String @key }")
    return on.graph.nodes("Town", at=before).to_arrow()


@of_class("FileDamaged")
def _(on: Ground) -> object:
    for file in Path(on.graph.uri).glob("tables/*/data/*"):
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 1
        file.write_bytes(content)
    with og.connect(on.graph.uri, verify="first-read") as fresh:
        return fresh.nodes("Person").to_arrow()


@of_class("NotDurable")
def _(on: Ground) -> object:
    def fails(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    defaults = Syncer.__init__.__kwdefaults__
    assert defaults is not None
    on.patch.setitem(defaults, "fsync", fails)  # as a disk that breaks answers
    with og.connect(on.graph.uri, durability="sync") as careful:
        return careful.mutate(ADD, s="b")


@of_class("NoRoomNow")
def _(on: Ground) -> object:
    on.load(*(f"a person of a rather long name {number}" for number in range(2_000)))
    memory = Memory(64 << 20)
    with connect(on.graph.uri, memory=memory) as graph, memory.taking(64 << 20, "others"):
        return graph.query(PAIRS)


@of_class("TimedOut")
def _(on: Ground) -> object:
    ended = threading.Event()
    try:
        return within(0.01, lambda: int(ended.wait(60)), DeadlineProgress())
    finally:
        ended.set()


@of_class("ServerFailure")
def _(on: Ground) -> object:
    on.patch.setattr(Graph, "query", lambda *_, **__: 1 / 0)  # a defect of ours
    _asked(on, "POST", "/query", json={"query": ALL})


def _without_access(on: Ground) -> object:
    on.patch.setattr("builtins.open", _refused)  # as the system answers who has no rights
    return on.graph.backup(on.folder / "copy.og")


def _refused(*_: object, **__: object) -> NoReturn:
    raise PermissionError(errno.EACCES, "Permission denied")


# -- the table -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(WAYS))
def test_it_is_raised(code: str, ground: Ground) -> None:
    with pytest.raises((GraphError, _Reported)) as caught:
        WAYS[code](ground)
    error = caught.value
    if isinstance(error, _Reported):
        assert str(error) == code
        return
    assert isinstance(error, GraphError)
    assert error.code == code
    assert str(error)
    assert type(error).__name__ not in INTERNAL


@pytest.mark.parametrize("name", sorted(OF_CLASS))
def test_each_class_of_a_code_is_raised(name: str, ground: Ground) -> None:
    with pytest.raises(GraphError) as caught:
        OF_CLASS[name](ground)
    assert type(caught.value).__name__ == name
    assert str(caught.value)


def test_the_tables_have_every_code_and_every_class() -> None:
    errors = [error for error in all_errors() if error.__name__ not in INTERNAL]
    assert {error.code for error in errors} - BASES == WAYS.keys() | ON_SPARK.keys()
    of_code = Counter(error.code for error in errors)
    shared = {error.__name__ for error in errors if of_code[error.code] > 1}
    assert shared - BASE_CLASSES == OF_CLASS.keys() | ELSEWHERE.keys()


def test_bases_are_raised_nowhere() -> None:
    for name in BASE_CLASSES:
        raised = re.compile(rf"\b(raise|return) {name}\(")
        assert not [path for path in (ROOT / "src").rglob("*.py") if raised.search(path.read_text())]


def test_what_is_raised_elsewhere_is_raised_there() -> None:
    for file, said in (*ON_SPARK.values(), *ELSEWHERE.values()):
        assert said in (ROOT / file).read_text()
