"""Every public operation asks the guard, before anything is read or written; what is denied stays unknown."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.base.errors import GraphError, PermissionDenied, QueryNotFound
from omnigraph.engine.access import Action, Guard
from omnigraph.engine.branches import GraphBranches
from omnigraph.engine.commits import Commits, GraphTags
from omnigraph.engine.graph import Graph
from omnigraph.engine.history.entity import Entity
from omnigraph.engine.history.feed import Changes
from omnigraph.engine.schema.schema import Schemas
from omnigraph.engine.stored import GraphQueries
from omnigraph.storage.cost import measured

SCHEMA = "node Person { slug: String @key  age: I32? }\n"
WIDER = SCHEMA.replace("I32", "I64")
ALL = "query all() { match { $p: Person } return { $p.slug as slug } }"
ADD = "query add($s: String) { insert Person { slug: $s } }"
ANY_ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
Asked = tuple[str, str | None, str | None]  # action, branch, target


@dataclass
class Asking:
    """A guard that notes what it is asked, and allows what it is told to."""

    allows: Callable[[Action, str | None, str | None], bool] = lambda action, branch, target: True
    asked: list[Asked] = field(default_factory=list)

    def check(self, action: Action, *, branch: str | None = None, target: str | None = None) -> None:
        """Note the question and answer it."""
        self.asked.append((action.value, branch, target))
        if not self.allows(action, branch, target):
            raise PermissionDenied("not allowed", action=action.value, resource="test")


def reading(*branches: str) -> Asking:
    """Return a guard that allows to read some branches, and nothing else."""
    return Asking(lambda action, branch, target: action is Action.READ and branch in branches)


def nothing() -> Asking:
    """Return a guard that denies everything."""
    return Asking(lambda action, branch, target: False)


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    """Branches: main, `open` (read by most) and `secret`, each with a commit of its own; a tag on each."""
    with og.init(None, SCHEMA) as graph:
        graph.mutate(ADD, s="on main")
        for name in ("open", "secret"):
            graph.branches.create(name)
            graph.mutate(ADD, s=f"on {name}", branch=name)
            graph.tags.create(f"tag-{name}", branch=name)
        yield graph


# -- no operation is forgotten ---------------------------------------------------------------------------
#
# method -> a call of it, and what it asks first. A method that is added needs a row, or a place in FREE.

Row = tuple[Callable[[Graph], object], Asked]
CALLS: dict[str, Row] = {
    "Graph.query": (lambda g: g.query(ALL, branch="open"), ("read", "open", None)),
    "Graph.explain": (lambda g: g.explain(ALL), ("read", "main", None)),
    "Graph.profile": (lambda g: g.profile(ALL, at="secret~0"), ("read", "main", None)),
    "Graph.mutate": (lambda g: g.mutate(ADD, s="b", if_commit=ANY_ID[:9]), ("change", "main", None)),
    "Graph.run": (lambda g: g.run("any"), ("invoke_query", None, None)),
    "Graph.load": (lambda g: g.load("no-such-file.jsonl", mode="append"), ("change", "main", None)),
    "Graph.merge": (lambda g: g.merge("open"), ("branch_merge", "open", "main")),
    "Graph.revert": (lambda g: g.revert(ANY_ID[:9]), ("change", "main", None)),
    "Graph.diff": (lambda g: g.diff("main~1", "main"), ("read", "main", None)),
    "Graph.nodes": (lambda g: g.nodes("Person"), ("read", "main", None)),
    "Graph.edges": (lambda g: g.edges("Knows"), ("read", "main", None)),
    "Graph.export": (lambda g: g.export("no/such/folder"), ("export", "main", None)),
    "Graph.branch": (lambda g: g.branch("open"), ("read", "open", None)),
    "Graph.at": (lambda g: g.at(ANY_ID[:9]), ("read", "main", None)),
    "Graph.fragmentation": (lambda g: g.fragmentation(), ("read", "main", None)),
    "Graph.embed": (lambda g: g.embed(), ("read", "main", None)),
    "Graph.ensure_indexes": (lambda g: g.ensure_indexes(), ("admin", None, None)),
    "Graph.optimize": (lambda g: g.optimize(), ("admin", None, None)),
    "Graph.backup": (lambda g: g.backup("no/such/folder"), ("admin", None, None)),
    "Graph.clone": (lambda g: g.clone("no/such/folder", at=ANY_ID), ("admin", None, None)),
    "Graph.verify": (lambda g: g.verify(), ("admin", None, None)),
    "Graph.doctor": (lambda g: g.doctor(), ("admin", None, None)),
    "Graph.cleanup": (lambda g: g.cleanup(keep=1), ("admin", None, None)),
    "Schemas.catalog": (lambda g: g.schema.catalog(), ("read", "main", None)),
    "Schemas.for_reads": (lambda g: g.schema.for_reads(), ("read", "main", None)),
    "Schemas.show": (lambda g: g.schema.show("open"), ("read", "open", None)),
    "Schemas.plan": (lambda g: g.schema.plan("no-such.pg"), ("read", "main", None)),
    "Schemas.apply": (lambda g: g.schema.apply("no-such.pg"), ("schema_apply", None, "main")),
    "Schemas.lint": (lambda g: g.schema.lint("no-such.pg"), ("read", "main", None)),
    "Schemas.diagram": (lambda g: g.schema.diagram(), ("read", "main", None)),
    "GraphBranches.create": (lambda g: g.branches.create("n", "open"), ("branch_create", "open", "n")),
    "GraphBranches.list": (lambda g: g.branches.list(), ("read", "main", None)),
    "GraphBranches.get": (lambda g: g.branches.get("open"), ("read", "open", None)),
    "GraphBranches.rename": (lambda g: g.branches.rename("open", "n"), ("branch_delete", None, "open")),
    "GraphBranches.delete": (lambda g: g.branches.delete("open"), ("branch_delete", None, "open")),
    "GraphQueries.list": (lambda g: g.queries.list(), ("read", "main", None)),
    "Commits.list": (lambda g: g.commits.list(before=ANY_ID[:9]), ("read", "main", None)),
    "Commits.graph": (lambda g: g.commits.graph(), ("read", "main", None)),
    "Commits.get": (lambda g: g.commits.get(ANY_ID), ("read", "main", None)),
    "GraphTags.create": (lambda g: g.tags.create("t", branch="open"), ("change", "open", None)),
    "GraphTags.list": (lambda g: g.tags.list(), ("read", "main", None)),
    "GraphTags.get": (lambda g: g.tags.get("tag-open"), ("read", "main", None)),
    "GraphTags.delete": (lambda g: g.tags.delete("tag-open"), ("read", "main", None)),
    "Changes.__call__": (lambda g: g.changes(), ("read", "main", None)),
    "Changes.poll": (lambda g: g.changes.poll(), ("read", "main", None)),
    "Changes.wait": (lambda g: g.changes.wait(timeout=0.0), ("read", "main", None)),
    "Changes.baseline": (lambda g: g.changes.baseline(), ("export", "main", None)),
    "Changes.of": (lambda g: g.changes.of(ANY_ID[:9]), ("read", "main", None)),
    "Entity.get": (lambda g: g.entity("Person", "a").get(), ("read", "main", None)),
    "Entity.history": (lambda g: g.entity("Person", "a").history(branch="open"), ("read", "open", None)),
}
FREE = {  # they read and write nothing
    *("Graph.acting", "Graph.close", "Graph.entity", "Graph.uri"),
}
CLASSES = (Graph, Schemas, GraphBranches, GraphQueries, Commits, GraphTags, Changes, Entity)


def test_every_public_method_has_a_row() -> None:
    public = {
        f"{owner.__name__}.{name}"
        for owner in CLASSES
        for name in dir(owner)
        for member in [inspect.getattr_static(owner, name)]
        if (inspect.isfunction(member) or isinstance(member, property))
        and (not name.startswith("_") or name == "__call__")
    }
    assert public == CALLS.keys() | FREE


@pytest.mark.parametrize("method", sorted(CALLS))
def test_each_is_refused_before_anything_is_read(method: str, graph: Graph) -> None:
    call, first = CALLS[method]
    guard = nothing()
    guarded = graph.acting("eve", guard)
    before = graph.store.location.uri, contents(graph)
    # A query that may not be called is answered like one that there is not.
    refusal = QueryNotFound if method == "Graph.run" else PermissionDenied
    with measured() as meter, pytest.raises(refusal) as caught:
        call(guarded)
    assert guard.asked == [first] or (method == "Graph.diff" and guard.asked[-1] == first)
    assert meter.cost.requests == 0
    if isinstance(caught.value, PermissionDenied):
        assert (caught.value.action, caught.value.code) == (first[0], "forbidden")
    assert (graph.store.location.uri, contents(graph)) == before


def contents(graph: Graph) -> set[tuple[str, int]]:
    """Return the files of a graph, with their sizes."""
    return {(str(path), path.stat().st_size) for path in Path(graph.uri).rglob("*") if path.is_file()}


# -- who writes ------------------------------------------------------------------------------------------


def test_writes_are_those_of_the_actor_and_of_no_other(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", SCHEMA, durability="os") as whole:
        graph = whole.acting("ada", Asking())
        made = [
            graph.mutate(ADD, s="a").commit,
            graph.load([{"type": "Person", "data": {"slug": "b"}}], mode="append").commit,
            graph.schema.apply(WIDER).commit,
            graph.revert(graph.mutate(ADD, s="c", actor="ada").commit_id or "").commit,
        ]
        assert [commit.actor for commit in made if commit is not None] == ["ada"] * 4
        assert graph.tags.create("t").actor == "ada"
        writes: list[Callable[[], object]] = [
            lambda: graph.mutate(ADD, s="d", actor="bob"),
            lambda: graph.load([], mode="append", actor="bob"),
            lambda: graph.merge("x", actor="bob"),
            lambda: graph.schema.apply(SCHEMA, actor="bob"),
            lambda: graph.tags.create("u", actor="bob"),
            lambda: graph.optimize(actor="bob"),
            lambda: graph.ensure_indexes(actor="bob"),
            lambda: graph.clone(tmp_path / "c", actor="bob"),
            lambda: graph.acting("bob"),
        ]
        for write in writes:
            with pytest.raises(og.InvalidRequest, match="acts for 'ada'"):
                write()
        assert repr(graph).endswith("branch='main', actor='ada')")


def test_a_view_of_a_guarded_graph_is_guarded(graph: Graph) -> None:
    guarded = graph.acting("ada", reading("main", "open"))
    for view in (guarded, guarded.branch("open"), guarded.at("main~1"), guarded.branch("open").at("open~1")):
        with pytest.raises(PermissionDenied):
            view.query(ALL, branch="secret")
        assert view.view.by(None) == "ada"


# -- what a call asks ------------------------------------------------------------------------------------


def asked(graph: Graph, call: Callable[[Graph], object], guard: Asking | None = None) -> list[Asked]:
    guard = guard or Asking()
    call(graph.acting("ada", guard))
    return guard.asked


def test_a_merge_that_deletes_its_source_asks_for_both(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", SCHEMA, durability="os") as graph:
        graph.branches.create("b")
        assert asked(graph, lambda g: g.merge("b", preview=True)) == [
            ("read", "b", None),
            ("read", "main", None),
        ]
        may_merge = Asking(lambda action, branch, target: action is not Action.BRANCH_DELETE)
        with pytest.raises(PermissionDenied):
            graph.acting("ada", may_merge).merge("b", delete_branch=True)
        assert graph.branches.get("b").name == "b"
        assert asked(graph, lambda g: g.merge("b", delete_branch=True)) == [
            ("branch_merge", "b", "main"),
            ("branch_delete", None, "b"),
        ]


def test_a_load_asks_to_make_a_branch_only_where_it_makes_one(tmp_path: Path) -> None:
    def load(g: Graph, *, dry_run: bool = False) -> object:
        return g.load([], mode="append", branch="new", from_branch="main", dry_run=dry_run)

    with og.init(tmp_path / "g", SCHEMA, durability="os") as graph:
        change = ("change", "new", None)
        may_change = Asking(lambda action, branch, target: action is Action.CHANGE)
        for dry_run in (True, False):
            with pytest.raises(PermissionDenied):
                load(graph.acting("ada", may_change), dry_run=dry_run)
        assert [branch.name for branch in graph.branches.list()] == ["main"]
        assert asked(graph, load) == [change, ("branch_create", "main", "new")]
        assert asked(graph, load) == [change]


def test_a_rename_deletes_one_name_and_makes_another(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", SCHEMA, durability="os") as graph:
        graph.branches.create("b")
        assert asked(graph, lambda g: g.branches.rename("b", "c")) == [
            ("branch_delete", None, "b"),
            ("branch_create", "b", "c"),
        ]


def test_names_are_asked_for_as_they_are_used(graph: Graph) -> None:
    assert asked(graph, lambda g: g.query(ALL, branch="  open ")) == [("read", "open", None)]
    with pytest.raises(og.GraphError, match="bad branch name"):
        graph.acting("ada", Asking()).query(ALL, branch="a\nb")


def test_a_state_asks_for_the_branch_that_holds_it(graph: Graph) -> None:
    commit = graph.branches.get("secret").head
    assert commit is not None
    for at in (commit, commit[:20], "tag-secret", "secret~0"):
        assert ("read", "secret", None) in asked(graph, partial(Graph.query, gq=ALL, at=at))
    assert asked(graph, lambda g: g.tags.delete("tag-secret", dry_run=True))[1] == ("change", "secret", None)
    create = asked(graph, lambda g: g.branches.create("n", at=commit, dry_run=True))
    assert [question for question in create if question[0] == "branch_create"] == [
        ("branch_create", "main", "n"),
        ("branch_create", "secret", "n"),
    ]


# -- a denial tells nothing ------------------------------------------------------------------------------


def told(call: Callable[[], object], *hidden: str | None) -> tuple[Any, ...]:
    """Return all that an error says, with the names of what was asked for taken out."""
    with pytest.raises(GraphError) as caught:
        call()
    error = caught.value
    text = f"{error} {error.fields}"
    for name in hidden:
        assert name is not None
        text = text.replace(name, "X")
    return type(error), error.code, text


READS: dict[str, Callable[[Graph, str], object]] = {
    "query": lambda g, at: g.query(ALL, at=at),
    "explain": lambda g, at: g.explain(ALL, at=at),
    "at": lambda g, at: g.at(at),
    "nodes": lambda g, at: g.nodes("Person", at=at),
    "entity": lambda g, at: g.entity("Person", "a").get(at=at),
    "schema": lambda g, at: g.schema.show(at=at),
    "commit": lambda g, at: g.commits.get(at),
    "diff": lambda g, at: g.diff(at),
    "tag": lambda g, at: g.tags.create("x", at),
    "export": lambda g, at: g.export("no/such/folder", at=at),
    "fork": lambda g, at: g.branches.create("x", at=at),
}


@pytest.mark.parametrize("read", sorted(READS))
def test_a_state_that_may_not_be_read_is_as_unknown_as_one_that_is_not_there(read: str, graph: Graph) -> None:
    def allows(action: Action, branch: str | None, target: str | None) -> bool:
        return branch in (None, "main", "open")

    guarded = graph.acting("ada", Asking(allows))
    head = graph.branches.get("secret").head
    assert head is not None
    unknown_id = head[:-1] + ("0" if head[-1] != "0" else "1")
    pairs = [
        (head, unknown_id),
        (head[:24], unknown_id[:23] + ("0" if head[23] != "0" else "1")),
        ("tag-secret", "tag-no-one"),
        ("secret~0", "no-one~0"),
        ("secret~9999", "no-one~9999"),
    ]
    if read == "diff":
        pairs.append(("secret", "no-one"))
    for denied, absent in pairs:
        seen, expected = (
            told(partial(READS[read], guarded, at), at, at.partition("~")[0]) for at in (denied, absent)
        )
        assert seen == expected, (denied, absent)
        assert head not in str(seen)


def test_ids_of_hidden_commits_are_not_completed(graph: Graph) -> None:
    guarded = graph.acting("ada", Asking(lambda action, branch, target: branch != "secret"))
    head = graph.branches.get("secret").head or ""
    with pytest.raises(og.InvalidRequest, match=f"'{head[:24]}' is not a commit id"):
        guarded.mutate(ADD, s="z", if_commit=head[:24])
    for call in (
        lambda: guarded.revert(head[:24]),
        lambda: guarded.changes.of(head),
        lambda: guarded.changes(start=f"after:{head}"),
        lambda: guarded.commits.list(before=head[:24]),
    ):
        with pytest.raises(og.CommitNotFound) as unknown:
            call()
        assert unknown.value.fields["graph_commit_id"] in (head, head[:24])
    shared = 6  # ids of one quarter of an hour begin alike: an ambiguous one lists only what may be read
    with pytest.raises(GraphError) as caught:
        guarded.at(head[:shared])
    assert head not in str(caught.value)


def test_a_branch_that_may_not_be_read_is_refused_whether_or_not_there_is_one(graph: Graph) -> None:
    guarded = graph.acting("ada", reading("main"))
    calls: list[Callable[[str], object]] = [
        lambda name: guarded.query(ALL, branch=name),
        lambda name: guarded.branch(name),
        lambda name: guarded.branches.get(name),
        lambda name: guarded.changes(branch=name),
        lambda name: guarded.merge(name, preview=True),
        lambda name: guarded.branches.delete(name),
        lambda name: guarded.branches.create("open", name),
    ]
    for call in calls:
        denied, absent = (told(partial(call, name), name) for name in ("secret", "no-one"))
        assert denied == absent
        assert denied[1] == "forbidden"


def test_lists_leave_out_what_hidden_branches_hold(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", SCHEMA, durability="os") as graph:
        graph.branches.create("secret")
        hidden = graph.mutate(ADD, s="hidden", branch="secret").commit_id
        graph.mutate(ADD, s="open")
        graph.merge("secret")
        guarded = graph.acting("ada", reading("main"))
        assert hidden in [commit.id for commit in graph.commits.graph()]
        assert hidden not in [commit.id for commit in guarded.commits.graph()]
        heads = {branch.name: branch.head for branch in guarded.branches.list(counts=True)}
        assert (heads["secret"], heads["main"]) == (None, graph.branches.get("main").head)


def test_what_is_allowed_answers_as_without_a_guard(graph: Graph) -> None:
    guarded = graph.acting("ada", Asking())
    for read in (
        lambda g: g.query(ALL, at="secret~1").to_arrow().to_pylist(),
        lambda g: [c.to_json() for c in g.diff("open", "secret")],
        lambda g: [c.to_json() for c in g.diff("tag-open", "secret~1")],
        lambda g: g.commits.get("secret~0"),
        lambda g: g.branch("secret").at("secret~1").nodes("Person").to_arrow().to_pylist(),
        lambda g: g.changes.of(graph.branches.get("open").head).to_json(),
        lambda g: g.branches.list(counts=True),
    ):
        assert read(guarded) == read(graph)


def test_a_guard_has_a_check(graph: Graph) -> None:
    assert isinstance(Asking(), Guard)
    with pytest.raises(og.BadArgument, match="must be a Guard or None"):
        graph.acting("ada", lambda *a: None)  # type: ignore[arg-type]
