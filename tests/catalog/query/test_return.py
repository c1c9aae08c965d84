"""What a read returns: columns, groups, order and pages."""

from __future__ import annotations

import pytest

from omnigraph.catalog.query import BadParameters, bind_params, page, query_entry
from omnigraph.catalog.query.expressions import (
    Aggregate,
    Arithmetic,
    Bm25,
    Constant,
    EntityValue,
    Nearest,
    OutputRef,
    PropertyValue,
    Rrf,
    ShortestPath,
)
from omnigraph.catalog.query.statements import SortKey
from tests.support.checked_queries import matched, mutation, read

PARAMS = "$s: String, $v: Vector(3), $n: I64?"


@pytest.mark.parametrize(
    ("output", "column"),
    [
        ("$p.age", {"name": "p.age", "kind": "int", "nullable": True}),
        ("$p.age as years", {"name": "years", "kind": "int", "nullable": True}),
        ("$p.name", {"name": "p.name", "kind": "string", "nullable": False}),
        ("$p.kind", {"name": "p.kind", "kind": "string", "nullable": False}),
        ("$p.visits", {"name": "p.visits", "kind": "bigint", "nullable": True}),
        ("$p.small", {"name": "p.small", "kind": "int", "nullable": True}),
        ("$p.big", {"name": "p.big", "kind": "bigint", "nullable": True}),
        ("$p.score", {"name": "p.score", "kind": "float", "nullable": True}),
        ("$p.active", {"name": "p.active", "kind": "bool", "nullable": True}),
        ("$p.born", {"name": "p.born", "kind": "date", "nullable": True}),
        ("$p.joined", {"name": "p.joined", "kind": "datetime", "nullable": False}),
        ("$p.tags", {"name": "p.tags", "kind": "list", "item_kind": "string", "nullable": True}),
        ("$p.vec", {"name": "p.vec", "kind": "vector", "vector_dim": 3, "nullable": True}),
        ("$p", {"name": "p", "kind": "object", "nullable": False}),
        ("$p.@id", {"name": "p.@id", "kind": "string", "nullable": False}),
        ("$s", {"name": "s", "kind": "string", "nullable": False}),
        ("$n", {"name": "n", "kind": "bigint", "nullable": True}),
        ("$v", {"name": "v", "kind": "vector", "vector_dim": 3, "nullable": False}),
        ("1", {"name": "literal", "kind": "bigint", "nullable": False}),
        ("2.5", {"name": "literal", "kind": "float", "nullable": False}),
        ('"x"', {"name": "literal", "kind": "string", "nullable": False}),
        ("[1, 2.5]", {"name": "literal", "kind": "list", "item_kind": "float", "nullable": False}),
        ("now()", {"name": "now", "kind": "datetime", "nullable": False}),
        ("nearest($p.vec, $v)", {"name": "nearest", "kind": "float", "nullable": True}),
        ("bm25($p.bio, $s)", {"name": "bm25", "kind": "float", "nullable": False}),
        ("rrf(nearest($p.vec, $s), bm25($p.bio, $s))", {"name": "rrf", "kind": "float", "nullable": False}),
        ("search($p.bio, $s)", {"name": "search", "kind": "bool", "nullable": False}),
        ("fuzzy($p.bio, $s)", {"name": "fuzzy", "kind": "bool", "nullable": False}),
        ("match_text($p.bio, $s)", {"name": "match_text", "kind": "bool", "nullable": False}),
        ("$p.age + 1", {"name": "expression", "kind": "bigint", "nullable": True}),
        (
            "shortest($p knows{1,3} $q)",
            {"name": "shortest", "kind": "list", "item_kind": "string", "nullable": True},
        ),
        ("count($p)", {"name": "p", "kind": "bigint", "nullable": True}),
        ("count($p.tags)", {"name": "p.tags", "kind": "bigint", "nullable": True}),
        ("sum($p.age)", {"name": "p.age", "kind": "float", "nullable": True}),
        ("avg($p.score)", {"name": "p.score", "kind": "float", "nullable": True}),
        ("min($p.name)", {"name": "p.name", "kind": "string", "nullable": True}),
        ("max($p.kind)", {"name": "p.kind", "kind": "string", "nullable": True}),
        ("max($p.born)", {"name": "p.born", "kind": "date", "nullable": True}),
        ("min($p.joined)", {"name": "p.joined", "kind": "datetime", "nullable": True}),
        ("min($p.active)", {"name": "p.active", "kind": "bool", "nullable": True}),
        ("sum($p.age + 1)", {"name": "expression", "kind": "float", "nullable": True}),
        ("count_distinct($p)", {"name": "p", "kind": "bigint", "nullable": True}),
        ("collect($p.age)", {"name": "p.age", "kind": "list", "item_kind": "int", "nullable": True}),
    ],
)
def test_columns(output: str, column: dict[str, object]) -> None:
    checked = matched("$p: Person $p knows $q", output, params=PARAMS)

    assert [c.to_json() for c in checked.columns] == [column]


def test_columns_come_in_the_order_written() -> None:
    checked = matched("$p: Person", "$p.name, 1, $p.age as a, $p")

    assert [output.name for output in checked.outputs] == ["p.name", "literal", "a", "p"]


def test_an_alias_stands_for_an_output_above_it() -> None:
    checked = matched("$p: Person", "$p.age as a, a + 1 as b, b as c")
    last = checked.outputs[2].value
    assert isinstance(last, OutputRef)

    assert (last.position, last.name) == (1, "b")
    assert checked.keys is None


# -- groups ------------------------------------------------------------------------------------------


def test_the_other_outputs_are_the_grouping_keys() -> None:
    checked = matched(
        "$p: Person $p knows $f", "$p, count($f) as n, $p.name, $p.@id, n * 2 as m, $p.age as a, a as b"
    )

    assert checked.keys == (0, 2, 3, 5, 6)
    assert isinstance(checked.outputs[0].value, EntityValue)
    assert isinstance(checked.outputs[1].value, Aggregate)


def test_without_keys_there_is_one_group() -> None:
    assert matched("$p: Person", "count($p)").keys == ()
    assert matched("$p: Person", "count($p) - 1 as n").keys == ()
    assert matched("$p: Person", "$p.age").keys is None


def test_an_alias_inside_an_aggregate_is_the_value_of_the_row() -> None:
    checked = matched("$p: Person", "$p.age as a, a as b, sum(b + 1) as total")
    total = checked.outputs[2].value
    assert isinstance(total, Aggregate)
    assert isinstance(total.argument, Arithmetic)

    assert total.argument.left == checked.outputs[0].value


def test_an_alias_of_a_node_that_may_be_missing_may_be_null() -> None:
    checked = matched("$p: Person optional { $p worksAt $c }", "$p as a, a as b, $c as d, d as e")

    assert [column.nullable for column in checked.columns] == [False, False, True, True]


# -- order -------------------------------------------------------------------------------------------


def order(output: str, keys: str, tail: str = "", *, distinct: bool = False) -> tuple[SortKey, ...]:
    """The sort keys of a read."""
    body = f"match {{ $p: Person $p knows $q }} return {'distinct ' * distinct}{{ {output} }}"
    return read(f"query q({PARAMS}) {{ {body} order {{ {keys} }} {tail} }}").order


def test_rows_are_ordered_by_properties_and_aliases() -> None:
    first, second, third = order("$p.age as a", "$q.name desc, a, $p.@id asc")

    assert isinstance(first.value, PropertyValue)
    assert (first.descending, second.descending) == (True, False)
    assert isinstance(second.value, OutputRef)
    assert third.value == order("1", "$p.@id")[0].value


def test_groups_are_ordered_by_their_outputs_and_aggregates() -> None:
    alias, key, same, other = order("$p.name, count($q) as n", "n desc, $p.name, count($q), sum($q.age)")

    assert isinstance(alias.value, OutputRef)
    assert isinstance(key.value, OutputRef)
    assert key.value.position == 0
    assert isinstance(same.value, OutputRef)
    assert same.value.position == 1
    assert isinstance(other.value, Aggregate)


def test_distinct_rows_are_ordered_by_their_outputs() -> None:
    (key,) = order("$p.name as n", "$p.name", distinct=True)

    assert isinstance(key.value, OutputRef)


def test_a_ranking_comes_before_the_keys() -> None:
    checked = matched("$p: Person", "1", "order { nearest($p.vec, $s), $p.name } limit 3", PARAMS)

    assert isinstance(checked.ranking, Nearest)
    assert checked.ranking.embeds
    assert len(checked.order) == 1
    assert checked.limit == 3


def test_a_vector_query_is_stored_as_one() -> None:
    checked = matched("$p: Person", "1", "order { nearest($p.vec, [1, 0.1, 2]) } limit 3")
    assert isinstance(checked.ranking, Nearest)
    query = checked.ranking.query
    assert isinstance(query, Constant)

    assert query.value == (1.0, 0.10000000149011612, 2.0)
    assert query.type.dimension == 3
    assert not checked.ranking.embeds


@pytest.mark.parametrize(
    ("output", "tail", "kind"),
    [
        ("1", "order { bm25($p.bio, $s) desc }", Bm25),
        ("bm25($p.bio, $s) as score", "order { score }", Bm25),
        ("1", "order { rrf(bm25($p.bio, $s), nearest($p.vec, $v), 10) } limit $k", Rrf),
        ("rrf(bm25($p.bio, $s), bm25($p.name, $s)) as r, r as x", "order { x } limit 1", Rrf),
    ],
)
def test_rankings_and_their_aliases(output: str, tail: str, kind: type[object]) -> None:
    checked = matched("$p: Person", output, tail, "$s: String, $v: Vector(3), $k: I32")

    assert isinstance(checked.ranking, kind)
    assert checked.order == ()


def test_a_ranking_may_be_of_a_variable_that_a_traversal_reached() -> None:
    checked = matched("$p: Person $p likes $d", "$d.title", "order { nearest($d.vec, $s) } limit 1", PARAMS)

    assert isinstance(checked.ranking, Nearest)
    assert checked.ranking.variable.name == "d"


# -- pages -------------------------------------------------------------------------------------------


def test_pages_are_numbers_or_parameters() -> None:
    checked = matched("$p: Person", "1", "limit $n offset 2", "$n: U32")
    values = bind_params(checked.parameters, {"n": 5})

    assert page(checked.limit, values, "limit") == 5
    assert page(checked.offset, values, "offset") == 2
    assert page(matched("$p: Person").limit, {}, "limit") is None
    assert matched("$p: Person", "1", "limit 0").limit == 0


def test_a_negative_page_is_refused() -> None:
    checked = matched("$p: Person", "1", "limit $n", "$n: I32")

    with pytest.raises(BadParameters, match="param 'n': limit must not be negative, got -1"):
        page(checked.limit, bind_params(checked.parameters, {"n": -1}), "limit")


# -- descriptions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "output", "reads"),
    [
        ("$p: Person", "1", ["node Person"]),
        ("$p worksAt $c", "1", ["node Company", "node Person", "edge WorksAt"]),
        ("$p: Person not { $p knows $f }", "1", ["node Person", "edge Knows"]),
        ("$p: Person exists { $p likes $_ }", "1", ["node Doc", "node Person", "edge Likes"]),
        ("$p: Person $q: Person", "shortest($p knows{1,2} $q)", ["node Person", "edge Knows"]),
        ("$p: Person $q: Person", "count(shortest($p knows{1,2} $q)) as n", ["node Person", "edge Knows"]),
    ],
)
def test_what_a_read_reads(match: str, output: str, reads: list[str]) -> None:
    described = matched(match, output).operation.to_json()

    assert [f"{t['kind']} {t['type_name']}" for t in described["reads"]] == reads
    assert described["writes"] == []


def test_a_shortest_path_follows_the_edge_between_its_ends() -> None:
    (output,) = matched("$p: Person $q: Person", "shortest($p <knows>{1,4} $q)").outputs
    assert isinstance(output.value, ShortestPath)

    assert (output.value.hops.low, output.value.hops.high) == (1, 4)


def test_an_entry_describes_a_query_to_its_callers() -> None:
    text = """query find($name: String, $ids: [I64]?, $v: Vector(3)) @description("Find") @instruction("Do") {
        match { $p: Person { name: $name } } return { $p.age } }"""

    assert query_entry(read(text)) == {
        "name": "find",
        "description": "Find",
        "instruction": "Do",
        "mutation": False,
        "params": [
            {"name": "name", "kind": "string", "nullable": False},
            {"name": "ids", "kind": "list", "item_kind": "bigint", "nullable": True},
            {"name": "v", "kind": "vector", "vector_dim": 3, "nullable": False},
        ],
        "returns": [{"name": "p.age", "kind": "int", "nullable": True}],
    }
    assert query_entry(mutation("delete Person where age = 1")) == {
        "name": "q",
        "mutation": True,
        "params": [],
        "returns": [],
    }
