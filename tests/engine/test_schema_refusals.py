"""An apply that cannot be done changes nothing: violations are listed, obstacles have codes, all of them."""

from __future__ import annotations

from typing import Any

import pytest

import omnigraph as og
from omnigraph.base.errors import (
    ConstraintViolation,
    InvalidRequest,
    PreconditionFailed,
    SchemaUnsupported,
    StaleVersion,
)
from omnigraph.language.diagnostics import SchemaError
from omnigraph.storage.durability import armed
from tests.engine.cases import knows, person
from tests.support.contents import check_whole, insert, objects_at, read, state
from tests.support.places import Place
from tests.support.s3 import S3Server
from tests.support.workers import once

pytestmark = pytest.mark.s3_when_full

EDGE = {"src": "a", "dst": "b"}
DOUBLE = [{"id": f"e{n}", **EDGE} for n in range(2)]
VIOLATIONS = [
    pytest.param("p: I32?", "p: I32? @unique", [1, 1, 2], "unique", 1, id="unique"),
    pytest.param("p: F64?", "p: F64? @unique", [0.0, -0.0], "unique", 1, id="unique-zeros"),
    pytest.param(
        "p: I32? q: I32? @default(1)",
        "p: I32? q: I32? @default(1) @unique(p, q)",
        [],
        "",
        0,
        id="unique-none",
    ),
    pytest.param("p: I32?", "p: I32? @range(p, 0..9)", [-1, 0, 9, 10, None], "range", 2, id="range"),
    pytest.param("p: F64?", "p: F64? @range(p, ..9)", [1.0, float("nan")], "range", 1, id="range-nan"),
    pytest.param(
        "p: I32? @range(p, 0..)", "p: I32? @range(p, 0..9)", [9, 10], "range", 1, id="tightened-range"
    ),
    pytest.param("p: String?", 'p: String? @check(p, "^a{2}$")', ["aa", "b", None], "check", 1, id="check"),
    pytest.param("p: enum(a, b, c)?", "p: enum(a, b)?", ["a", "c", None, "c"], "enum", 2, id="enum"),
    pytest.param("p: I32?", "p: I32", [1, None, None], "required", 2, id="required"),
    pytest.param("p: I32?", "p: I64", [1, None], "required", 1, id="widened-and-required"),
    pytest.param("p: I32?", "p: I64? @range(p, 0..9)", [1, 10], "range", 1, id="widened-and-range"),
    pytest.param(
        "p: I32?", 'q: I32? @rename_from("p") @unique', [1, 1], "unique", 1, id="renamed-and-unique"
    ),
    pytest.param(
        "p: I32?", "p: I32? q: I32 @default(1) @unique", [1, 2], "unique", 1, id="filled-and-unique"
    ),
    pytest.param(
        "p: I32?", "p: I32? q: Bool @default(false) @unique", [1, 2], "unique", 1, id="filled-with-false"
    ),
    pytest.param(
        "p: I32?", "p: I32? q: I32 @default(50) @range(q, 0..9)", [1, 2], "range", 2, id="filled-and-range"
    ),
]


@pytest.mark.parametrize(("before", "after", "values", "code", "total"), VIOLATIONS)
def test_rows_that_break_a_new_constraint_are_listed_and_nothing_changes(
    local_place: Place, before: str, after: str, values: list[Any], code: str, total: int
) -> None:
    with og.init(local_place.address, person(before)) as graph:
        insert(graph, {"Person": [{"slug": f"s{n}", "p": v} for n, v in enumerate(values)]})
        if not total:
            assert graph.schema.apply(person(after)).applied
            return
        was, objects = state(graph), objects_at(local_place)
        with pytest.raises(ConstraintViolation) as caught:
            graph.schema.apply(person(after))

        assert caught.value.code == "constraint_violation"
        assert caught.value.fields["total"] == total
        found = caught.value.fields["violations"]
        assert [one["code"] for one in found] == [code] * total
        assert {(one["entity_kind"], one["type_name"]) for one in found} == {("node", "Person")}
        assert repr(state(graph)) == repr(was)  # NaN is not equal to itself
        assert objects_at(local_place) == objects


@pytest.mark.parametrize(
    ("after", "code", "edges"),
    [
        (knows("@card(0..1)"), "cardinality", DOUBLE),
        (knows("@card(2..)"), "cardinality", DOUBLE[:1]),
        (knows(body="@unique(src, dst)"), "unique", DOUBLE),
        (knows(body="@unique(dst)"), "unique", DOUBLE),
    ],
)
def test_edges_that_break_a_new_constraint_are_listed_and_nothing_changes(
    local_place: Place, after: str, code: str, edges: list[dict[str, Any]]
) -> None:
    with og.init(local_place.address, knows()) as graph:
        insert(graph, {"Person": [{"slug": "a"}, {"slug": "b"}], "Knows": edges})
        was = state(graph)
        with pytest.raises(ConstraintViolation) as caught:
            graph.schema.apply(after)

        assert [(v["code"], v["entity_kind"]) for v in caught.value.fields["violations"]] == [(code, "edge")]
        assert state(graph) == was


@pytest.mark.parametrize(
    "constraint", ["p: I32? @range(p, 0..)", "p: I32? @unique(p)", "p: I32 @range(p, ..99)"]
)
def test_the_first_twenty_violations_are_shown_and_all_are_counted(
    local_place: Place, constraint: str
) -> None:
    with og.init(local_place.address, person("p: I32?")) as graph:
        broken = [None if "p: I32 " in constraint else -1 - n // 2 for n in range(60)]
        insert(graph, {"Person": [{"slug": f"s{n:02d}", "p": p} for n, p in enumerate(broken)]})
        with pytest.raises(ConstraintViolation) as caught:
            graph.schema.apply(person(constraint))

        total = 30 if "unique" in constraint else 60
        assert (len(caught.value.fields["violations"]), caught.value.fields["total"]) == (20, total)
        assert f"{total - 20} more" in str(caught.value)


def test_violations_of_several_types_are_counted_together(local_place: Place) -> None:
    with og.init(local_place.address, person("p: I32?", "node City { p: I32? }")) as graph:
        insert(graph, {"Person": [{"slug": "a", "p": -1}], "City": [{"id": "c", "p": -1}]})
        with pytest.raises(ConstraintViolation) as caught:
            graph.schema.apply(person("p: I32? @range(p, 0..)", "node City { p: I32? @range(p, 0..) }"))

        assert {one["type_name"] for one in caught.value.fields["violations"]} == {"Person", "City"}


@pytest.mark.parametrize(
    ("after", "late", "code"),
    [
        ("p: I32? @unique", 1, "unique"),
        ("p: I32? @range(p, 0..9)", 10, "range"),
        ("p: I32", None, "required"),
    ],
)
def test_rows_that_arrive_during_an_apply_are_judged_too(
    place: Place, after: str, late: int | None, code: str
) -> None:
    with (
        og.init(place.address, person("p: I32?"), **place.kwargs) as graph,
        og.connect(place.address, **place.kwargs) as other,
    ):
        insert(graph, {"Person": [{"slug": "a", "p": 1}]})
        arrive = once(lambda: insert(other, {"Person": [{"slug": "b", "p": late}]}))
        with armed({"publish.before": arrive}), pytest.raises(ConstraintViolation) as caught:
            graph.schema.apply(person(after))

        assert [one["code"] for one in caught.value.fields["violations"]] == [code]
        assert graph.schema.show() == person("p: I32?")
        assert len(read(graph, "Person")) == 2


@pytest.mark.parametrize("after", ["q: I32", "p: I32", "p: I32? @range(p, 0..9)"])
def test_the_first_row_of_an_empty_type_is_never_let_past_a_demand_that_it_breaks(
    local_place: Place, after: str
) -> None:
    """Emptiness made the plan cheap; once it is gone, the plan must not land as it is."""
    with (
        og.init(local_place.address, person("p: I32?")) as graph,
        og.connect(local_place.address) as other,
    ):
        late = None if after == "p: I32" else 10
        arrive = once(lambda: insert(other, {"Person": [{"slug": "b", "p": late}]}))
        with (
            armed({"publish.before": arrive}),
            pytest.raises((StaleVersion, ConstraintViolation, SchemaUnsupported)),
        ):
            graph.schema.apply(person(after))

        assert graph.schema.show() == person("p: I32?")
        check_whole(graph)


@pytest.mark.parametrize("after", ["p: I32? @index", "p: I32? q: I32?", "p: I32? @range(p, 0..99)"])
def test_a_first_row_that_fits_does_not_stop_an_apply_on_an_empty_type(
    local_place: Place, after: str
) -> None:
    """Nothing is rewritten here: the apply looks again and lands (A-07)."""
    with (
        og.init(local_place.address, person("p: I32?")) as graph,
        og.connect(local_place.address) as other,
    ):
        arrive = once(lambda: insert(other, {"Person": [{"slug": "b", "p": 1}]}))
        with armed({"publish.before": arrive}):
            assert graph.schema.apply(person(after)).applied

        assert [row["p"] for row in read(graph, "Person")] == [1]


UNSUPPORTED = [
    pytest.param(person("p: I32? q: I32"), ["OG-MF-103"], id="required-added"),
    pytest.param(person("p: String?"), ["OG-MF-106"], id="type-changed"),
    pytest.param(person("p: U64?"), ["OG-MF-106"], id="not-a-widening"),
    pytest.param(person("p: [I32]?"), ["OG-MF-106"], id="list-ness"),
    pytest.param("node Person { slug: String p: I32? }", ["OG-MF-108"], id="key-removed"),
    pytest.param("node Person { slug: String p: I32 @key(slug, p) }", ["OG-MF-108"], id="key-changed"),
    pytest.param(person("p: String? q: I32"), ["OG-MF-103", "OG-MF-106"], id="several"),
]


@pytest.mark.parametrize(("after", "codes"), UNSUPPORTED)
def test_an_unsupported_plan_names_every_obstacle_and_writes_nothing(
    place: Place, request: pytest.FixtureRequest, after: str, codes: list[str]
) -> None:
    server: S3Server | None = request.getfixturevalue("s3_server") if place.options else None
    with og.init(place.address, person("p: I32?"), **place.kwargs) as graph:
        insert(graph, {"Person": [{"slug": "a", "p": 1}]})
        was, objects = state(graph), objects_at(place, server)
        with pytest.raises(SchemaUnsupported) as caught:
            graph.schema.apply(after)

        assert sorted({step["code"] for step in caught.value.fields["steps"]}) == codes
        assert state(graph) == was
        assert objects_at(place, server) == objects


def test_the_refusal_of_a_required_property_shows_the_default_to_write(local_place: Place) -> None:
    with og.init(local_place.address, person("p: I32?")) as graph:
        insert(graph, {"Person": [{"slug": "a"}]})
        with pytest.raises(SchemaUnsupported, match=r"q: I32 @default\(0\)"):
            graph.schema.apply(person("p: I32? q: I32"))


def test_dropping_a_node_type_that_an_edge_type_still_uses_is_refused(local_place: Place) -> None:
    with og.init(local_place.address, person(extra="node City {}\nedge Lives: Person -> City")) as graph:
        was = state(graph)
        with pytest.raises(SchemaError):
            graph.schema.apply(person(extra="edge Lives: Person -> City"))
        assert state(graph) == was


def test_a_schema_with_errors_writes_nothing(local_place: Place) -> None:
    with og.init(local_place.address, person()) as graph:
        was, objects = state(graph), objects_at(local_place)
        with pytest.raises(SchemaError):
            graph.schema.apply("node Person { slug: Strin @key }")
        assert (state(graph), objects_at(local_place)) == (was, objects)


@pytest.mark.parametrize("same", [person("p: I32?"), f"// words\n{person('  p:   I32?')}"])
def test_a_schema_without_difference_makes_no_commit(place: Place, same: str) -> None:
    with og.init(place.address, person("p: I32?"), **place.kwargs) as graph:
        was = graph.store.snapshot()
        receipt = graph.schema.apply(same)

        assert (receipt.applied, receipt.commit, receipt.plan.steps) == (False, None, ())
        assert graph.store.snapshot() == was


def test_a_plan_writes_nothing(local_place: Place) -> None:
    with og.init(local_place.address, person("p: I32?")) as graph:
        insert(graph, {"Person": [{"slug": "a", "p": 1}]})
        was, objects = state(graph), objects_at(local_place)
        plan = graph.schema.plan(person("p: I64? q: I32 @default(1)", "node City {}"))

        assert plan.supported
        assert [plan.rows(step) for step in plan.steps] == [0, 1, 1]
        assert (state(graph), objects_at(local_place)) == (was, objects)


def test_an_apply_does_exactly_what_the_plan_said(local_place: Place) -> None:
    after = person("p: I64? q: I32 @default(1)", "node City {}")
    with og.init(local_place.address, person("p: I32?")) as graph:
        insert(graph, {"Person": [{"slug": "a", "p": 1}]})
        planned = graph.schema.plan(after).to_json()

        assert graph.schema.apply(after).plan.to_json() == planned


def test_an_apply_with_a_stale_expectation_is_refused(local_place: Place) -> None:
    with og.init(local_place.address, person()) as graph:
        stale = graph.store.snapshot().commit_id
        insert(graph, {"Person": [{"slug": "a"}]})
        with pytest.raises(PreconditionFailed):
            graph.schema.apply(person("p: I32?"), if_commit=stale)


def test_a_schema_file_that_is_not_there_is_a_bad_request(local_place: Place) -> None:
    with og.init(local_place.address, person()) as graph, pytest.raises(InvalidRequest, match="cannot read"):
        graph.schema.apply("nowhere.pg")
