"""Random writes between random moments: the diff is what a plain model of both states says."""

from __future__ import annotations

from copy import deepcopy
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.history import comparison, delta
from tests.engine.history.brute import as_brute, brute_diff, in_order

SCHEMA = """
node Person { name: String @key  age: I32?  tags: [String]?  score: F64? }
edge Knows: Person -> Person { note: String? }
"""
NAMES = [f"p{number}" for number in range(8)]
EDGES = ["e0", "e1", "e2"]
Model = dict[tuple[str, str], dict[str, Any]]

names = st.sampled_from(NAMES)
values = st.fixed_dictionaries(
    {},
    optional={
        "age": st.none() | st.integers(0, 2),
        "tags": st.none() | st.lists(st.sampled_from(["", "a", "a, b"]), max_size=2),
        "score": st.none() | st.sampled_from([0.0, 1.5]),
    },
)
people = st.dictionaries(names, values, min_size=1, max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), people),
        st.tuples(st.just("overwrite"), people),
        st.tuples(st.just("delete"), names),
        st.tuples(
            st.just("link"), st.tuples(st.sampled_from(EDGES), names, names, st.none() | st.text(max_size=2))
        ),
        st.tuples(st.sampled_from(["index", "optimize"]), st.none()),
    ),
    min_size=1,
    max_size=10,
)


def put_people(graph: Graph, model: Model, given: dict[str, dict[str, Any]], mode: Any) -> None:
    graph.load([{"type": "Person", "data": {"name": name, **row}} for name, row in given.items()], mode=mode)
    if mode == "overwrite":
        for key in [key for key in model if key[0] == "Person"]:
            del model[key]
    for name, row in given.items():
        blank = {"id": name, "name": name, "age": None, "tags": None, "score": None}
        model["Person", name] = {**blank, **row}  # a record replaces the whole entity


def delete(graph: Graph, model: Model, name: str) -> None:
    graph.mutate("query q($n: String) { delete Person where name = $n }", n=name)
    model.pop(("Person", name), None)
    for key in [k for k, row in model.items() if k[0] == "Knows" and name in (row["src"], row["dst"])]:
        del model[key]


def do(graph: Graph, model: Model, step: tuple[str, Any]) -> None:
    """Take one step in the graph and in the model; what a constraint would refuse is left out."""
    how, what = step
    linked = {row[end] for key, row in model.items() if key[0] == "Knows" for end in ("src", "dst")}
    if how == "upsert":
        put_people(graph, model, what, "merge")
    elif how == "overwrite" and linked <= set(what):
        put_people(graph, model, what, "overwrite")
    elif how == "delete":
        delete(graph, model, what)
    elif how == "link":
        edge, source, target, note = what
        if ("Person", source) in model and ("Person", target) in model:
            data = {"id": edge, "note": note}
            graph.load([{"edge": "Knows", "from": source, "to": target, "data": data}], mode="merge")
            model["Knows", edge] = {"id": edge, "src": source, "dst": target, "note": note}
    elif how == "index":
        graph.ensure_indexes()
    elif how == "optimize":
        graph.optimize()


@pytest.mark.timeout(600)
@given(steps=steps, ranges=st.booleans())
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_diff_is_what_a_plain_model_says(steps: list[tuple[str, Any]], ranges: bool) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if ranges:  # as for a table that does not fit in memory
            patch.setattr(delta, "RANGE_ROWS", 3)
            patch.setattr(comparison, "KEPT_ROWS", 2)
        with og.init(f"{folder}/graph.og", SCHEMA, durability="os") as graph:
            model: Model = {}
            moments = [(graph.store.snapshot().commit_id, deepcopy(model))]
            for step in steps:
                do(graph, model, step)
                moments.append((graph.store.snapshot().commit_id, deepcopy(model)))
            check(graph, moments)


def check(graph: Graph, moments: list[tuple[str, Model]]) -> None:
    first, middle, last = moments[0], moments[len(moments) // 2], moments[-1]
    for older, newer in [(first, last), (middle, last), (last, middle), (first, middle)]:
        found = graph.diff(older[0], newer[0])
        counts = {
            op: sum(getattr(one, op) for one in found.types) for op in ("inserted", "updated", "deleted")
        }
        changes = list(found)
        expected = brute_diff(older[1], newer[1])
        assert as_brute(changes) == expected
        assert in_order(changes)
        assert list(counts.values()) == [
            sum(op == name for op, _ in expected.values()) for name in ("insert", "update", "delete")
        ]
        for one in changes:
            assert one.after is None or one.after == _flat(newer[1][one.type_name, one.id])
            assert one.before is None or one.before == _flat(older[1][one.type_name, one.id])


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return {{"src": "from", "dst": "to"}.get(name, name): value for name, value in row.items()}
