"""What Python users meet: errors that say everything, rows that print, graphs bound to a branch or moment."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import omnigraph as og

SCHEMA = """
node Person {
    name: String @key
    born: I32?
    score: F64?
    since: DateTime?
    tags: [String]?
    @unique(born)
}
edge Knows: Person -> Person
"""
PEOPLE = [
    {"type": "Person", "data": {"name": "Ada", "born": 1815, "score": 0.0, "tags": ["a", "b"]}},
    {"type": "Person", "data": {"name": "Bo", "since": "2020-02-03T04:05:06Z"}},
    {"type": "Person", "data": {"name": "Cy", "born": 1900, "score": 2.5}},
    {"edge": "Knows", "from": "Ada", "to": "Bo"},
]
ADD = "query add($n: String, $b: I32?) { insert Person { name: $n, born: $b } }"
ALL = "query every() { match { $p: Person } return { $p.name as name, $p.born as born } order { name } }"
SET = "query set($n: String, $b: I32?) { update Person set { born: $b } where name = $n }"


@pytest.fixture(scope="module")
def library() -> Iterator[og.Graph]:
    """A graph that tests only read."""
    with og.init(None, SCHEMA) as graph:
        graph.load(PEOPLE, mode="append")
        yield graph


@pytest.fixture
def graph() -> Iterator[og.Graph]:
    """A graph of one person."""
    with og.init(None, SCHEMA) as graph:
        graph.mutate(ADD, n="Ada", b=1815)
        yield graph


def refused(kind: type[Any], call: Callable[[], object]) -> Any:
    with pytest.raises(kind) as caught:
        call()
    return caught.value


# -- errors --------------------------------------------------------------------------------------------


def test_a_refused_text_shows_every_fault_where_it_stands(library: og.Graph) -> None:
    text = "query q() { match { $p: Person } return { $p.nme as a, $q.name as b } }"
    error = refused(og.QueryError, lambda: library.query(text))

    assert "query.gq:1:46: error[T6]: type error: T6: node type Person has no property 'nme'" in str(error)
    assert f"1 | {text}\n  | {' ' * 45}^^^\n  = help: did you mean 'name'?" in str(error)
    assert "variable '$q' is not bound here" in str(error)
    assert "\n" not in error.summary
    assert repr(error) == f"QueryError({error.summary!r})"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_more_than_twenty_faults_are_counted() -> None:
    error = refused(og.SchemaError, lambda: og.init(None, "node N {" + " a: Strng" * 30 + "}"))
    assert str(error).count("\n  |\n") == 20
    assert str(error).endswith(f"... and {len(error.diagnostics) - 20} more")


def test_refused_rows_are_a_table_with_what_to_do(library: og.Graph) -> None:
    rows: list[dict[str, Any]] = [
        {"type": "Person", "data": {"name": "日本", "born": "x"}},
        {"type": "Persn", "data": {}},
    ]
    error = refused(og.ConstraintViolation, lambda: library.load(rows, mode="append"))

    assert (error.total, [violation["code"] for violation in error.violations]) == (
        2,
        ["type", "unknown_type"],
    )
    header, first, second, advice, remedy = str(error).splitlines()[1:]
    assert header == "  place        code          type    what"
    assert first == "  <records>:1  type          Person  Person.born: expected an integer (I32), found 'x'"
    assert second.startswith("  <records>:2  unknown_type  -       the schema has no node type 'Persn'")
    assert advice.startswith("  unknown_type: ")
    assert remedy == "  Nothing was changed; mend the rows and try again"
    assert error.summary == f"the load was refused: 2 violations. {remedy.strip()}"


def test_errors_have_their_facts_as_attributes(graph: og.Graph) -> None:
    first = graph.branches.get("main").head
    graph.branches.create("draft")
    graph.mutate(SET, n="Ada", b=1)
    graph.mutate(SET, n="Ada", b=2, branch="draft")
    merge = refused(og.MergeConflict, lambda: graph.merge("draft"))
    assert issubclass(og.MergeConflict, og.ConflictError)
    assert [(type(one), one.entity_id) for one in merge.conflicts] == [(og.Conflict, "Ada")]
    assert merge.conflicts[0].message in str(merge)
    assert repr(merge.conflicts[0]).startswith("Conflict(divergent_update: ")
    copy = pickle.loads(pickle.dumps(merge))
    assert (copy.conflicts, copy.total, str(copy)) == (merge.conflicts, 1, str(merge))

    lost = refused(og.PreconditionFailed, lambda: graph.mutate(SET, n="Ada", b=3, if_commit=first))
    assert (lost.branch, lost.expected, lost.actual) == ("main", first, graph.branches.get("main").head)
    taken = refused(og.KeyConflict, lambda: graph.load(PEOPLE[:1], mode="append"))
    assert (taken.type_name, taken.entity_id) == ("Person", "Ada")
    wrong = refused(og.BadParameters, lambda: graph.mutate(SET, n=1, b="x"))
    assert [line for line in str(wrong).splitlines() if "param 'b'" in line]


# -- rows ----------------------------------------------------------------------------------------------


def test_a_result_prints_as_a_table(library: og.Graph) -> None:
    result = library.query(ALL)
    assert str(result).splitlines() == [
        "name  born",
        "Ada   1815",
        "Bo    null",
        "Cy    1900",
        f"3 rows at commit {result.commit_id}",
    ]
    assert "<td>1815</td>" in result._repr_html_()
    assert f"3 rows at commit {result.commit_id}" in result._repr_html_()


def test_long_and_wide_results_are_cut(library: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    many = library.query(
        "query m() { match { $p: Person  $q: Person  $r: Person } return { $p.name, $q.name } }"
    )
    assert str(many).splitlines()[-1] == f"27 rows, 20 shown at commit {many.commit_id}"
    assert len(str(many).splitlines()) == 22
    monkeypatch.setenv("COLUMNS", "12")
    narrow = str(library.nodes("Person"))
    assert max(map(len, narrow.splitlines()[:-1])) <= 12
    assert "more columns at commit" in narrow


def test_rows_are_indexed_and_handed_on(library: og.Graph, tmp_path: Path) -> None:
    result = library.query(ALL)
    assert (result[0], result[-1]["name"]) == ({"name": "Ada", "born": 1815}, "Cy")
    assert [row["name"] for row in result[1:]] == ["Bo", "Cy"]
    assert pa.table(result).equals(result.to_arrow())
    assert polars.DataFrame(result).rows() == [("Ada", 1815), ("Bo", None), ("Cy", 1900)]
    assert result.to_csv() == "name,born\r\nAda,1815\r\nBo,\r\nCy,1900\r\n"
    assert result.to_csv(tmp_path / "rows.csv") is None
    assert (tmp_path / "rows.csv").read_bytes().decode() == result.to_csv()
    assert refused(og.InvalidRequest, lambda: result.to_csv(tmp_path / "no" / "rows.csv")).remedy


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"name": "Ada"}, ["Ada"]),
        ({"id": ["Cy", "Ada", "Zoe"]}, ["Ada", "Cy"]),
        ({"born": None}, ["Bo"]),
        ({"born": [None, 1900]}, ["Bo", "Cy"]),
        ({"score": -0.0}, ["Ada"]),
        ({"born": 1815, "name": "Cy"}, []),
        ({"since": dt.datetime(2020, 2, 3, 4, 5, 6, tzinfo=dt.UTC)}, ["Bo"]),
        ({"name": []}, []),
        ({"name": "' or 1=1 --"}, []),
    ],
)
def test_nodes_are_filtered_by_value(library: og.Graph, values: dict[str, Any], names: list[str]) -> None:
    kept = library.nodes("Person").filter(**values)
    assert [row["name"] for row in kept.select("name")] == names
    assert len(kept) == len(names)


def test_filters_add_up_and_a_selection_keeps_its_order(library: og.Graph) -> None:
    people = library.nodes("Person")
    older = people.filter(pc.field("born") < 2000).filter(pc.field("score") > 1).select("score", "name")
    assert older.rows == [{"score": 2.5, "name": "Cy"}]
    assert people.filter(name=["Ada", "Bo"]).filter(name=["Bo", "Cy"]).select("id").scalar() == "Bo"
    assert people.filter(name="Ada").one()["tags"] == ["a", "b"]
    assert (len(people), people.columns[0], people.select().columns) == (3, "id", people.columns)
    assert library.edges("Knows").filter(src="Ada").select("dst").scalar() == "Bo"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.filter(nme="x"), "did you mean 'name'?"),
        (lambda rows: rows.filter(born="old"), "expected integer"),
        (lambda rows: rows.filter(tags="a"), "single values"),
        (lambda rows: rows.filter(pc.field("nme") == 1), "nme"),
        (lambda rows: rows.select("name", "bron"), "did you mean 'born'?"),
        (lambda rows: rows.select("name", "name"), "named twice"),
        (lambda rows: rows.select("name", 3), "argument 'columns' must be text, not 3 (int)"),
    ],
)
def test_a_wrong_column_or_value_is_refused_before_anything_is_read(
    library: og.Graph, change: Callable[[og.TypeRows], object], said: str
) -> None:
    assert said in str(refused(og.InvalidRequest, lambda: change(library.nodes("Person"))))


# -- views ---------------------------------------------------------------------------------------------


def names(graph: og.Graph) -> list[str]:
    return [row["name"] for row in graph.query(ALL)]


def test_a_graph_bound_to_a_branch_reads_and_writes_there(graph: og.Graph, tmp_path: Path) -> None:
    with graph.branch("draft", create=True) as draft:
        assert draft.mutate(ADD, n="Bo").branch == "draft"
        draft.load([{"type": "Person", "data": {"name": "Cy"}}], mode="append")
    assert (names(draft), names(graph)) == (["Ada", "Bo", "Cy"], ["Ada"])  # the view closed nothing
    assert (len(draft.nodes("Person")), len(graph.nodes("Person"))) == (3, 1)
    assert draft.commits.list().commits[0].branch == "draft"
    assert draft.tags.create("v1").commit_id == draft.branches.get("draft").head
    assert draft.entity("Person", "Bo").get() is not None
    assert graph.entity("Person", "Bo").get() is None
    assert sum(one.rows for one in draft.export(tmp_path / "out").types) == 3
    assert [change.id for change in draft.diff("main")] == ["Bo", "Cy"]
    assert draft.schema.apply(f"{SCHEMA}\nnode Extra {{ a: I32? }}").applied
    assert ("Extra" in draft.schema.show(), "Extra" in graph.schema.show()) == (True, False)
    assert draft.merge("main").target == "draft"
    assert draft.query(ALL, branch="main").branch == "main"
    assert repr(draft) == f"Graph({graph.uri!r}, branch='draft')"
    assert graph.branch("draft", create=True).query(ALL).branch == "draft"  # it is there already
    refused(og.BranchNotFound, lambda: graph.branch("nowhere"))


def test_a_graph_of_the_past_reads_one_state_and_refuses_writes(graph: og.Graph) -> None:
    before = graph.branches.get("main").head
    graph.mutate(ADD, n="Bo")
    past = graph.at("main~1")
    graph.mutate(ADD, n="Cy")

    assert (names(past), len(past.nodes("Person"))) == (["Ada"], 1)  # the same, though main went on
    assert past.commits.list().commits[0].id == before
    assert names(past.branch("again", create=True)) == ["Ada"]
    assert names(graph.branch("again").at(graph.commits.list().commits[0].id)) == ["Ada", "Bo", "Cy"]
    for write in (
        lambda: past.mutate(ADD, n="Di"),
        lambda: past.mutate(ADD, n="Di", branch="main"),
        lambda: past.load(PEOPLE, mode="merge"),
        lambda: past.merge("again"),
        lambda: past.revert(str(before)),
        lambda: past.ensure_indexes(),
        lambda: past.optimize(),
        lambda: past.schema.apply(SCHEMA),
    ):
        error = refused(og.PastState, write)
        assert (error.code, error.fields["graph_commit_id"]) == ("past_state", before)


def test_connect_binds_to_a_branch(graph: og.Graph) -> None:
    graph.branch("draft", create=True).mutate(ADD, n="Bo")
    with og.connect(graph.uri, branch="draft") as draft:
        assert names(draft) == ["Ada", "Bo"]
    refused(og.GraphClosed, lambda: draft.query(ALL))
    refused(og.BranchNotFound, lambda: og.connect(graph.uri, branch="nowhere"))


def test_a_temporary_graph_is_removed_when_it_is_closed() -> None:
    with og.init(None, SCHEMA) as graph:
        place = Path(graph.uri)
        assert place.exists()
        graph.branch("draft", create=True).close()
        assert place.exists()
    assert not place.parent.exists()
    graph.close()


# -- short commit ids ----------------------------------------------------------------------------------


def test_the_beginning_of_a_commit_id_names_it(graph: og.Graph) -> None:
    graph.branch("draft", create=True).mutate(ADD, n="Bo")
    newest = graph.branches.get("draft").head
    assert newest is not None
    short = newest[:20]  # beyond the time, which commits that follow at once would share

    assert graph.commits.get(short).id == newest
    assert names(graph.at(short)) == ["Ada", "Bo"]
    assert graph.query(ALL, at=short).commit_id == newest
    assert [change.id for change in graph.diff("main", short)] == ["Bo"]
    assert graph.changes.of(short).block.cause.commit_id == newest
    assert len(graph.commits.list("draft", before=short)) == 2
    assert graph.tags.create("v1", at=short).commit_id == newest
    assert graph.mutate(ADD, n="Cy", branch="draft", if_commit=short).commit_id is not None
    assert graph.revert(short, branch="draft").commit_id is not None
    assert names(graph.branch("draft")) == ["Ada", "Cy"]
    refused(og.PreconditionFailed, lambda: graph.mutate(ADD, n="Di", branch="draft", if_commit=short))


def test_an_ambiguous_beginning_lists_the_commits(graph: og.Graph) -> None:
    ids = [commit.id for commit in graph.commits.list()]
    error = refused(og.AmbiguousCommit, lambda: graph.at(ids[0][:6]))
    assert (error.candidates, error.code) == (tuple(ids), "ambiguous_commit")
    assert all(commit_id in str(error) for commit_id in ids)
    refused(og.AmbiguousCommit, lambda: graph.mutate(ADD, n="Bo", if_commit=ids[0][:6]))
    refused(og.TagNotFound, lambda: graph.at("ZZZZZZ"))
    refused(og.TagNotFound, lambda: graph.at(ids[0][:5]))


# -- values --------------------------------------------------------------------------------------------


def test_what_calls_return_has_a_short_repr(graph: og.Graph) -> None:
    receipt = graph.mutate(ADD, n="Bo", message="more")
    commit = graph.commits.get(str(receipt.commit_id))
    graph.branches.create("draft")
    values = (receipt, commit, graph.merge("draft"), graph.diff("main~1"), next(iter(graph.diff("main~1"))))
    assert [type(value).__name__ for value in values] == [
        "Receipt", "CommitRecord", "MergeOutcome", "Diff", "Change"
    ]  # fmt: skip
    assert repr(commit) == f"Commit({commit.id} on 'main', mutation: 'more')"
    assert repr(receipt) == f"Receipt({commit.id} on 'main': 1 node, 0 edges)"
    for value in (*values, *graph.branches.list(), graph.tags.create("v1")):
        assert len(repr(value)) < 200
        assert "\n" not in repr(value)


def test_lint_reports_a_schema_and_its_queries() -> None:
    good = og.lint(SCHEMA, ALL)
    assert (bool(good), good.errors) == (True, ())
    bad = og.lint(SCHEMA, ALL.replace("$p.name", "$p.nme"))
    assert [found.code for found in bad.errors] == ["T6"]
    assert repr(bad) == "LintResult(1 error, 0 other findings)"
    assert "query.gq:1:50: error[T6]" in str(bad)
    assert bad.to_json()["status"] == "error"
    assert not og.lint("node N { a: Strng }", ALL)


def test_an_unknown_embedding_is_refused_before_a_graph_is_made(tmp_path: Path) -> None:
    refused(og.InvalidRequest, lambda: og.init(tmp_path / "g", SCHEMA, embedding="mok"))

    og.init(tmp_path / "g", SCHEMA).close()
