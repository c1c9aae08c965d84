"""A schema survives the way to a tree and back to text."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from omnigraph.language.schema import load, parse, print_schema
from tests.language.strategies import schemas

relaxed = settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])


@relaxed
@given(schemas())
def test_generated_schemas_are_valid_and_survive_printing(text: str) -> None:
    checked = load(text)

    printed = print_schema(checked.schema)

    assert parse(printed).schema == checked.schema
    assert load(printed).schema == checked.schema
    assert print_schema(parse(printed).schema) == printed


def test_printed_layout() -> None:
    text = """
    node   Person @description( "say \\"hi\\"" )implements Named{
    age:I32?@index @range(age,0..150) name:String@key}
    interface Named { name: String }
    edge Knows:Person->Person@card( 0 .. ){since:Date @unique(src,dst)}
    edge Likes: Person -> Person
    node Empty {}
    """
    assert (
        print_schema(load(text).schema)
        == """\
node Person @description("say \\"hi\\"") implements Named {
    age: I32? @index
    name: String @key
    @range(age, 0..150)
}

interface Named {
    name: String
}

edge Knows: Person -> Person @card(0..) {
    since: Date
    @unique(src, dst)
}

edge Likes: Person -> Person

node Empty {}
"""
    )
