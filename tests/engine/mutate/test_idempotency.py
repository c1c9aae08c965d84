"""One key, one effect: a call repeated under its idempotency key gets the first receipt (surfaces 2, 3.6)."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph, GraphError
from omnigraph.base.errors import (
    BranchNotFound,
    ConstraintViolation,
    HistoryReclaimed,
    InvalidRequest,
    KeyConflict,
)
from omnigraph.engine.write import Receipt
from omnigraph.storage.claims import KeyReused
from omnigraph.storage.durability import FailpointHit, armed
from omnigraph.storage.manifest.chain import CommitInDoubt
from omnigraph.storage.manifest.records import RECENT
from tests.support import writers
from tests.support.contents import read
from tests.support.graphs import chain_of
from tests.support.people import NOTE, SCHEMA, ages, head, knows, person, q, thing
from tests.support.places import Place
from tests.support.processes import run_processes
from tests.support.workers import once

TWO = q('insert Person { name: "a", age: 1 } update Person set { age: 2 } where name = "a"')
Act = Callable[[Graph], Receipt]
CALLS: dict[str, Act] = {
    "insert": lambda g: g.mutate(NOTE, value="x", idempotency_key="k"),
    "statements": lambda g: g.mutate(TWO, idempotency_key="k"),
    "append": lambda g: g.load([person("p"), thing("t")], mode="append", idempotency_key="k"),
    "merge": lambda g: g.load([thing("t"), thing("u", id="u")], mode="merge", idempotency_key="k"),
    "overwrite": lambda g: g.load([person("p")], mode="overwrite", idempotency_key="k"),
    "edges": lambda g: g.load(
        [person("p"), knows("p", "p"), knows("p", "p", id="e")], mode="merge", idempotency_key="k"
    ),
}


def same(first: Receipt, second: Receipt) -> bool:
    """Say whether two receipts tell the same, but for the price and for being a repetition."""
    told = [{**receipt.to_json(), "cost": None, "replayed": None} for receipt in (first, second)]
    return told[0] == told[1] and first.commit == second.commit


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest) -> Act:
    """Every kind of write that takes a key."""
    return CALLS[request.param]


def test_a_repeated_call_gets_the_first_receipt_and_writes_nothing(graph: Graph, call: Act) -> None:
    first = call(graph)
    graph.mutate(NOTE, value="somebody else's")
    rows = {name: read(graph, name) for name in ("Person", "Thing", "Knows")}
    now = head(graph)

    second = call(graph)

    assert not first.replayed
    assert second.replayed
    assert same(first, second)
    assert head(graph) == now
    assert {name: read(graph, name) for name in ("Person", "Thing", "Knows")} == rows


def test_another_handle_gets_the_first_receipt_too(graph: Graph, local_place: Place, call: Act) -> None:
    first = call(graph)

    with og.connect(local_place.address) as other:
        assert same(first, call(other))
    assert len(chain_of(graph.store)) == 2


def test_the_receipt_of_statements_that_touch_one_entity_twice_is_the_same(graph: Graph) -> None:
    first, second = CALLS["statements"](graph), CALLS["statements"](graph)

    assert first.affected_nodes == second.affected_nodes == 2
    assert first.query_name == second.query_name == "q"
    assert first.types == second.types


def test_the_commit_keeps_the_key(graph: Graph, call: Act) -> None:
    receipt = call(graph)

    assert receipt.commit is not None
    assert receipt.commit.labels["idempotency_key"] == "k"


def test_other_keys_are_other_calls(graph: Graph) -> None:
    receipts = [graph.mutate(NOTE, value="x", idempotency_key=key) for key in ("a", "b", "A")]

    assert len({receipt.commit_id for receipt in receipts}) == 3
    assert len(read(graph, "Thing")) == 3


def test_a_repetition_from_another_process_gets_the_first_receipt(place: Place) -> None:
    with og.init(place.address, SCHEMA, **place.kwargs) as graph:
        first = graph.mutate(TWO, idempotency_key="k")

        outcomes = run_processes(writers.once_under_a_key, [(place.address, place.options, "k", TWO)])

        assert [outcome.value for outcome in outcomes] == [(first.commit_id, True)]
        assert len(chain_of(graph.store)) == 2


def test_of_calls_at_the_same_time_one_writes_and_all_get_its_commit(local_place: Place) -> None:
    with og.init(local_place.address, SCHEMA) as graph:
        text = q('insert Thing { value: "once" }')
        jobs = [(local_place.address, local_place.options, "k", text)] * 4

        outcomes = run_processes(writers.once_under_a_key, jobs)

        assert [outcome.error_text for outcome in outcomes if not outcome.ok] == []
        answers = [outcome.value for outcome in outcomes if outcome.value is not None]
        assert {commit for commit, _ in answers} == {head(graph)}
        assert [replayed for _, replayed in answers].count(False) == 1
        assert len(read(graph, "Thing")) == 1


def test_twins_that_publish_from_one_base_make_one_commit(graph: Graph, local_place: Place) -> None:
    """Both looked for the first one's commit before it was there; the loser recognises it afterwards."""
    barrier = threading.Barrier(2)
    parked = threading.local()

    def meet() -> None:
        if not getattr(parked, "met", False):
            parked.met = True
            barrier.wait(30)

    with (
        og.connect(local_place.address) as other,
        armed({"publish.before": meet}),
        ThreadPoolExecutor(2) as pool,
    ):
        receipts = list(pool.map(CALLS["insert"], (graph, other)))

    assert sorted(receipt.replayed for receipt in receipts) == [False, True]
    assert receipts[0].commit == receipts[1].commit
    assert len(read(graph, "Thing")) == 1
    assert len(chain_of(graph.store)) == 2


# -- another request under the key -------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        lambda g: g.mutate(NOTE, value="y", idempotency_key="k"),
        lambda g: g.mutate(q('insert Thing { value: "x" }'), idempotency_key="k"),
        lambda g: g.load([thing("x")], mode="append", idempotency_key="k"),
    ],
    ids=["parameter", "text", "verb"],
)
def test_another_mutation_under_a_key_is_refused(graph: Graph, other: Act) -> None:
    first = graph.mutate(NOTE, value="x", idempotency_key="k")

    with pytest.raises(KeyReused) as caught:
        other(graph)

    assert caught.value.code == "idempotency_mismatch"
    assert caught.value.fields == {"key": "k", "first_commit_id": first.commit_id}
    assert head(graph) == first.commit_id


LOADED = [person("p", age=1), thing("t", id="t", seen=1), knows("p", "p", since=3)]


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        pytest.param([person("p", age=2), *LOADED[1:]], {}, id="a value"),
        pytest.param([LOADED[0], thing("t", id="u", seen=1), LOADED[2]], {}, id="an id"),
        pytest.param([LOADED[0], thing("t", id="t", seen=2), LOADED[2]], {}, id="a millisecond"),
        pytest.param([*LOADED[:2], knows("p", "q", since=3), person("q")], {}, id="an endpoint"),
        pytest.param(LOADED[:2], {}, id="fewer rows"),
        pytest.param([*LOADED, person("q")], {}, id="more rows"),
        pytest.param(LOADED, {"mode": "append"}, id="mode"),
    ],
)
def test_a_load_of_something_else_under_a_key_is_refused(
    graph: Graph, rows: list[Any], options: dict[str, Any]
) -> None:
    first = graph.load(LOADED, mode="merge", idempotency_key="k")

    with pytest.raises(KeyReused):
        graph.load(rows, **{"mode": "merge", "idempotency_key": "k", **options})

    assert head(graph) == first.commit_id


def test_what_is_emptied_belongs_to_the_request(graph: Graph) -> None:
    graph.load([person("p")], mode="overwrite", idempotency_key="k")

    with pytest.raises(KeyReused):
        graph.load([person("p")], mode="overwrite", replace_types=["Thing"], idempotency_key="k")


def test_tables_with_the_same_rows_are_the_same_load(graph: Graph) -> None:
    table = pa.table({"name": ["a", "b"], "age": pa.array([1, None], pa.int32())})
    first = graph.load(table, type="Person", mode="append", idempotency_key="k")

    again = graph.load(
        pa.concat_tables([table.slice(0, 1), table.slice(1)]).combine_chunks(),
        type="Person",
        mode="append",
        idempotency_key="k",
    )

    assert again.replayed
    assert again.commit_id == first.commit_id


def test_generated_values_do_not_make_a_load_another_one(local_place: Place) -> None:
    schema = "node Event { what: String at: DateTime @default(now) }"
    with og.init(local_place.address, schema, durability="os") as graph:
        rows = [{"type": "Event", "data": data} for data in ({"what": "a"}, {"what": "b", "id": "mine"})]
        first = graph.load(rows, mode="merge", idempotency_key="k")
        graph.store.clock.sleep(0.01)

        assert graph.load(rows, mode="merge", idempotency_key="k").commit_id == first.commit_id


# -- the schema moves on, the request does not -------------------------------------------------------

MOVES = {
    "a property added": SCHEMA.replace("value: String", "value: String extra: String?"),
    "a default added": SCHEMA.replace("value: String", 'value: String extra: String? @default("x")'),
    "a property renamed": SCHEMA.replace("value: String", 'text: String @rename_from("value")'),
    "the type renamed": SCHEMA.replace("node Thing", 'node Item @rename_from("Thing")'),
}
THINGS = [{"value": "a", "id": "a"}, {"value": "b"}]
INPUTS: dict[str, Callable[[Path], Any]] = {
    "records": lambda folder: THINGS,
    "generator": lambda folder: (row for row in THINGS),
    "table": lambda folder: pa.Table.from_pylist(THINGS),
    "reader": lambda folder: pa.Table.from_pylist(THINGS).to_reader(max_chunksize=1),
    "pandas": lambda folder: pa.Table.from_pylist(THINGS).to_pandas(),
    "lines": lambda folder: _kept(folder / "t.jsonl", "\n".join(map(json.dumps, THINGS))),
    "csv": lambda folder: _kept(folder / "t.csv", "id,value\na,a\n,b\n"),
    "bytes": lambda folder: "\n".join(map(json.dumps, THINGS)).encode(),
    "stream": lambda folder: io.BytesIO("\n".join(map(json.dumps, THINGS)).encode()),
}


def _kept(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("kind", "move"),
    [*((kind, "the type renamed") for kind in INPUTS), *(("records", move) for move in MOVES)],
)
def test_a_load_is_answered_although_its_type_has_moved_on(
    graph: Graph, tmp_path: Path, kind: str, move: str
) -> None:
    def act() -> Receipt:
        return graph.load(INPUTS[kind](tmp_path), type="Thing", mode="append", idempotency_key="k")

    first = act()
    graph.schema.apply(MOVES[move])
    now = head(graph)

    second = act()

    assert second.replayed
    assert same(first, second)
    assert head(graph) == now


def test_a_load_that_broke_off_lands_once_under_the_schema_of_today(graph: Graph) -> None:
    def act() -> Receipt:
        return graph.load(THINGS, type="Thing", mode="append", idempotency_key="k")

    with armed({"publish.before": "raise"}), pytest.raises(FailpointHit):
        act()
    graph.schema.apply(MOVES["a default added"])

    first, second = act(), act()

    assert (first.replayed, second.replayed) == (False, True)
    assert same(first, second)
    assert len(read(graph, "Thing")) == 2


def test_a_table_cut_or_encoded_otherwise_is_the_same_load(graph: Graph) -> None:
    table = pa.table({"name": [f"v{n}" for n in range(1000)], "age": [n % 100 for n in range(1000)]})

    def act(data: Any) -> Receipt:
        return graph.load(data, type="Person", mode="append", idempotency_key="k")

    first = act(table)
    same_rows = [
        pa.concat_tables([table.slice(0, 1), table.slice(1, 700), table.slice(701)]),
        table.select(["age", "name"]),
        table.append_column("note", pa.nulls(1000, pa.string())),
        table.to_reader(max_chunksize=7),
        table.set_column(0, "name", table["name"].dictionary_encode()),
    ]
    for data in same_rows:
        assert act(data).commit_id == first.commit_id

    other_rows = [
        table.set_column(1, "age", pa.array([*table["age"].to_pylist()[:-1], 3])),
        table.set_column(0, "name", pa.array([*table["name"].to_pylist()[:-1], "v0"])),
        table.slice(1),
        pa.table({"name": [], "age": []}),
    ]
    for data in other_rows:
        with pytest.raises(KeyReused):
            act(data)
    with pytest.raises(ConstraintViolation):  # no column of that name, then or now
        act(table.append_column("wrong", pa.nulls(1000)))


def test_a_claim_of_an_earlier_release_never_lands_twice(graph: Graph) -> None:
    """Earlier releases told loads apart by their rows as stored: such a claim is refused, with what it is."""
    first = graph.load(THINGS, type="Thing", mode="append", idempotency_key="k")
    claim = next((Path(graph.uri) / "__claims").iterdir())
    claim.write_text(json.dumps({"commit": first.commit_id, "request": "0" * 64}))

    with pytest.raises(KeyReused) as caught:
        graph.load(THINGS, type="Thing", mode="append", idempotency_key="k")

    assert caught.value.fields["first_commit_id"] == first.commit_id
    assert "has landed" in (caught.value.remedy or "")
    assert len(read(graph, "Thing")) == 2


def test_a_call_whose_commit_may_be_below_the_retention_floor_is_not_done_again(graph: Graph) -> None:
    CALLS["insert"](graph)
    graph.load([thing("t")], mode="append", idempotency_key="l")
    for _ in range(RECENT + 1):
        graph.mutate(NOTE, value="later")
    graph.store.raise_floor("main", graph.store.snapshot().state.version)
    now = head(graph)

    with pytest.raises(HistoryReclaimed):
        CALLS["insert"](graph)
    with pytest.raises(HistoryReclaimed):
        graph.load([thing("t")], mode="append", idempotency_key="l")

    assert head(graph) == now
    assert not graph.mutate(NOTE, value="new", idempotency_key="new").replayed


def test_vectors_that_print_alike_are_other_parameters(local_place: Place) -> None:
    with og.init(local_place.address, "node Doc { v: Vector(1200) }", durability="os") as graph:
        text = "query q($v: Vector(1200)) { insert Doc { v: $v } }"
        one, other = np.zeros(1200, np.float32), np.zeros(1200, np.float32)
        other[600] = 1.0
        graph.mutate(text, v=one, idempotency_key="k")

        assert graph.mutate(text, v=one.copy(), idempotency_key="k").replayed
        with pytest.raises(KeyReused):
            graph.mutate(text, v=other, idempotency_key="k")


@pytest.mark.parametrize("where", [{"branch": "review"}, {"actor": "bob"}])
def test_a_key_belongs_to_one_actor_on_one_branch(graph: Graph, where: dict[str, Any]) -> None:
    graph.store.branches.create("review", "main")
    first = graph.mutate(NOTE, value="x", idempotency_key="k")

    other = graph.mutate(NOTE, value="y", idempotency_key="k", **where)

    assert not other.replayed
    assert other.commit_id != first.commit_id


@pytest.mark.parametrize("act", ["mutate", "load"])
def test_a_key_belongs_to_a_branch_and_not_to_its_name(graph: Graph, act: str) -> None:
    """Another branch that gets the name makes a commit of its own: no two commits have one id."""

    def call(branch: str) -> Receipt:
        if act == "mutate":
            return graph.mutate(NOTE, value="x", branch=branch, idempotency_key="k")
        return graph.load([thing("t")], mode="append", branch=branch, idempotency_key="k")

    graph.store.branches.create("review", "main")
    first = call("review")
    graph.store.branches.rename("review", "old")
    graph.store.branches.create("review", "main")

    second = call("review")

    assert not second.replayed
    assert second.commit_id != first.commit_id
    assert (call("old").commit_id, call("review").commit_id) == (first.commit_id, second.commit_id)


ON_DEV: dict[str, Callable[[Graph], Any]] = {
    "mutate": lambda g: g.mutate(NOTE, value="x", branch="dev", idempotency_key="k"),
    "load": lambda g: g.load([thing("t")], mode="append", branch="dev", idempotency_key="k"),
    "merge": lambda g: g.merge("work", into="dev", idempotency_key="k"),
    "schema": lambda g: g.schema.apply(SCHEMA + "node New {}", branch="dev", idempotency_key="k"),
}


@pytest.mark.parametrize("act", ON_DEV)
def test_a_branch_made_anew_since_the_key_was_claimed_is_not_written(
    graph: Graph, local_place: Place, act: str
) -> None:
    """The key stands for a commit of the branch that was: a repetition would write to the new one again."""
    graph.branches.create("dev")
    graph.branches.create("work")
    graph.mutate(NOTE, value="w", branch="work")

    def meanwhile() -> None:
        with og.connect(local_place.address) as other:
            other.branches.delete("dev")
            other.branches.create("dev")

    with armed({"claim.after": once(meanwhile)}), pytest.raises(BranchNotFound, match="made anew"):
        ON_DEV[act](graph)
    assert head(graph, "dev") == head(graph)
    assert not ON_DEV[act](graph).replayed
    assert ON_DEV[act](graph).replayed


def test_a_claim_of_an_earlier_release_is_under_the_name_of_its_branch(graph: Graph) -> None:
    graph.store.branches.create("review", "main")
    first = graph.mutate(NOTE, value="x", branch="review", idempotency_key="k")
    claim = next((Path(graph.uri) / "__claims").iterdir())
    known = json.loads(claim.read_text())
    named = hashlib.sha256(json.dumps(["k", "review", None]).encode()).hexdigest()
    claim.with_name(f"{named}.json").write_text(json.dumps({n: known[n] for n in ("commit", "request")}))
    claim.unlink()

    again = graph.mutate(NOTE, value="x", branch="review", idempotency_key="k")

    assert again.replayed
    assert again.commit_id == first.commit_id


# -- calls that failed -------------------------------------------------------------------------------


def test_a_key_whose_call_was_refused_may_be_used_again(graph: Graph) -> None:
    def act() -> Receipt:
        return graph.mutate(q('insert Knows { from: "a", to: "b" }'), idempotency_key="k")

    with pytest.raises(ConstraintViolation):
        act()
    graph.load([person("a"), person("b")], mode="append")

    assert not act().replayed
    assert act().replayed
    assert len(read(graph, "Knows")) == 1


def test_a_key_whose_load_was_refused_may_be_used_again(graph: Graph) -> None:
    graph.load([person("a")], mode="append")
    for _ in range(2):
        with pytest.raises(KeyConflict):
            graph.load([person("a", age=5)], mode="append", idempotency_key="k")
    graph.mutate(q('delete Person where name = "a"'))

    assert graph.load([person("a", age=5)], mode="append", idempotency_key="k").commit is not None
    assert ages(graph) == {"a": 5}


@pytest.mark.parametrize("point", ["claim.before", "claim.after", "publish.before", "publish.after"])
def test_a_key_whose_call_broke_off_finds_out_whether_it_landed(graph: Graph, point: str, call: Act) -> None:
    with armed({point: "raise"}), pytest.raises(FailpointHit):
        call(graph)

    again = call(graph)

    assert again.replayed is (point == "publish.after")
    assert len(chain_of(graph.store)) == 2


def test_a_call_that_lost_only_the_answer_of_its_own_commit_is_no_repetition(graph: Graph, call: Act) -> None:
    def lose_the_answer() -> None:
        raise CommitInDoubt("no answer")

    with armed({"publish.after": once(lose_the_answer)}):
        receipt = call(graph)

    assert not receipt.replayed
    assert receipt.commit == graph.store.snapshot().state.commit
    assert call(graph).replayed
    assert len(chain_of(graph.store)) == 2


def test_a_call_that_did_nothing_runs_again_under_its_key(graph: Graph) -> None:
    text = q('delete Person where name = "a"')
    assert graph.mutate(text, idempotency_key="k").commit is None
    graph.load([person("a")], mode="append")

    assert graph.mutate(text, idempotency_key="k").affected_nodes == 1


def test_a_repetition_is_answered_although_the_schema_has_moved_on(graph: Graph) -> None:
    first = graph.mutate(NOTE, value="x", idempotency_key="k")
    graph.schema.apply(SCHEMA.replace("value: String", 'text: String @rename_from("value")'))

    assert graph.mutate(NOTE, value="x", idempotency_key="k").commit_id == first.commit_id
    with pytest.raises(GraphError):
        graph.mutate(NOTE, value="x", idempotency_key="new")


def test_a_repetition_is_answered_before_its_condition_is_looked_at(graph: Graph) -> None:
    expected = head(graph)
    first = graph.mutate(NOTE, value="x", idempotency_key="k", if_commit=expected)

    assert graph.mutate(NOTE, value="x", idempotency_key="k", if_commit=expected).commit_id == first.commit_id


@pytest.mark.parametrize("key", ["", "x" * 129, "line\nbreak"])
def test_a_key_is_short_and_visible(graph: Graph, key: str) -> None:
    with pytest.raises(InvalidRequest):
        graph.mutate(NOTE, value="x", idempotency_key=key)
    with pytest.raises(InvalidRequest):
        graph.load([thing("x")], mode="append", idempotency_key=key)
