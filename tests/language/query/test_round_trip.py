"""A query survives the way to a tree and back to text."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from omnigraph.language.query import parse_query, print_queries
from tests.language.query.strategies import queries

relaxed = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])


@relaxed
@given(queries())
def test_generated_queries_are_read_and_survive_printing(text: str) -> None:
    file = parse_query(text)

    printed = print_queries(file)

    assert parse_query(printed) == file
    assert print_queries(parse_query(printed)) == printed


def test_printed_layout() -> None:
    text = """
    query find($name:String,$ids:[I64]?)@description("say \\"hi\\""){
    match{$p:Person{name:$name,}-3<$p.age
    not{$p<knows>$_}count{$p $e:knows $q $e.since is not null}>=2
    (($p.age in $ids) or ($p.a = 1 and ($p.b = 2 or not ($p.c = 3)))) } return{1}}
    query change() { update Person set { age: null name: "x" } where (a = 1 or b > -2) and c in [1,2]
    delete Knows where from = "x" }
    query top() { match { $p: Person $p knows{1,2} $q } return distinct { $p.@id count($q) as n
    ($p.a - ($p.b - 1)) * 2 as m } order { n desc, $p.@id asc } offset 1 limit 3 }
    """
    assert (
        print_queries(parse_query(text))
        == """\
query find($name: String, $ids: [I64]?) @description("say \\"hi\\"") {
    match {
        $p: Person { name: $name }
        (-3) < $p.age
        not {
            $p <knows> $_
        }
        count {
            $p $e:knows $q
            $e.since is not null
        } >= 2
        $p.age in $ids or $p.a = 1 and ($p.b = 2 or not($p.c = 3))
    }
    return { 1 }
}

query change() {
    update Person set { age: null, name: "x" } where (a = 1 or b > -2) and c in [1, 2]
    delete Knows where from = "x"
}

query top() {
    match {
        $p: Person
        $p knows{1,2} $q
    }
    return distinct { $p.@id, count($q) as n, ($p.a - ($p.b - 1)) * 2 as m }
    order { n desc, $p.@id }
    limit 3
    offset 1
}
"""
    )
