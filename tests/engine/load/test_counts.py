"""Every record of a load is counted once: inserted, updated, without effect, or rejected."""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation, KeyConflict
from omnigraph.engine.load.assembly import LoadMode
from omnigraph.engine.write import Receipt
from tests.support.people import SCHEMA, knows, person, thing

NAMES = st.sampled_from("abc")
RECORDS = st.one_of(
    st.builds(lambda name, age: person(name, age=age), NAMES, st.sampled_from([1, 2, 500])),
    st.builds(lambda name, value: thing(value, id=name), NAMES, NAMES),
    st.builds(thing, NAMES),
    st.builds(lambda a, b, name: knows(a, b, id=name), NAMES, NAMES, NAMES),
)
MODES: st.SearchStrategy[LoadMode] = st.sampled_from(["append", "merge", "overwrite"])
INPUTS = st.lists(RECORDS, max_size=8)


def check_counts(receipt: Receipt, records: list[dict[str, Any]]) -> None:
    """Compare a receipt with the input that it is about."""
    names = Counter(record.get("type") or record["edge"] for record in records)
    assert {one.name: one.given for one in receipt.types if one.given} == names
    for one in receipt.types:
        assert one.given == one.inserted + one.updated + one.unchanged + one.rejected, one
        assert min(one.inserted, one.updated, one.unchanged, one.rejected) >= 0, one


@settings(max_examples=20, deadline=None)
@given(first=INPUTS, second=INPUTS, mode=MODES)
def test_every_record_is_counted_once(
    first: list[dict[str, Any]], second: list[dict[str, Any]], mode: LoadMode
) -> None:
    with tempfile.TemporaryDirectory() as folder, og.init(f"{folder}/g", SCHEMA, durability="os") as graph:
        graph.load([person(name) for name in "abc"], mode="append")
        for records, how in ((first, "merge"), (second, mode)):
            _load(graph, records, how)


def _load(graph: Graph, records: list[dict[str, Any]], mode: Any) -> None:
    try:
        receipt = graph.load(records, mode=mode)
    except (ConstraintViolation, KeyConflict):
        return  # refused whole
    check_counts(receipt, records)
    assert receipt.affected_nodes + receipt.affected_edges == len(records)


def test_records_that_a_later_one_replaces_change_nothing() -> None:
    records = [thing("first", id="t"), thing("last", id="t"), thing("other")]
    with tempfile.TemporaryDirectory() as folder, og.init(f"{folder}/g", SCHEMA, durability="os") as graph:
        foreseen = graph.load(records, mode="merge", dry_run=True)
        receipt = graph.load(records, mode="merge")
        assert foreseen.types == receipt.types
        (count,) = receipt.types
        assert (count.given, count.inserted, count.updated, count.unchanged) == (3, 2, 0, 1)
        assert count.to_json() == {
            "name": "Thing",
            "entities_loaded": 3,
            "inserted": 2,
            "updated": 0,
            "deleted": 0,
            "unchanged": 1,
            "rejected": 0,
        }
        check_counts(receipt, records)
    with pytest.raises(AssertionError):
        check_counts(receipt, records[:2])
