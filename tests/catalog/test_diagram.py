"""Pictures of a schema, as text."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from omnigraph.catalog.diagram import dot, mermaid
from tests.language.strategies import plain_schemas
from tests.support.catalogs import catalog

SHOP = """
interface Named { name: String @index }
node Shop implements Named { code: String @key  kind: enum(web, street)?  v: Vector(3)  tags: [String]? }
node Marker {}
edge Supplies: Shop -> Shop @card(1..3) { since: Date  price: F64 }
edge Marks: Marker -> Shop
"""


def test_mermaid() -> None:
    assert (
        mermaid(catalog(SHOP))
        == """\
classDiagram
    class interface_Named["Named"] {
        <<interface>>
        name : String
    }
    class node_Marker["Marker"]
    class node_Shop["Shop"] {
        code : String key
        kind : enum street | web?
        name : String index
        tags : [String]?
        v : Vector 3
    }
    node_Shop ..|> interface_Named
    node_Marker "*" --> "*" node_Shop : Marks
    node_Shop "*" --> "1..3" node_Shop : Supplies [price, since]
"""
    )


def test_dot() -> None:
    lines = dot(catalog(SHOP)).splitlines()

    assert lines[0] == "digraph schema {"
    assert lines[-1] == "}"
    assert '    "node_Shop" -> "interface_Named" [style=dashed, arrowhead=empty];' in lines
    assert '    "node_Shop" -> "node_Shop" [label="Supplies [price, since]", headlabel="1..3"];' in lines
    [shop] = [line for line in lines if line.startswith('    "node_Shop" [label=')]
    assert '<td align="left">kind</td><td align="left">enum(street, web)?</td><td></td>' in shop
    assert '<td align="left">code</td><td align="left">String</td><td>key</td>' in shop


def test_a_node_and_an_interface_of_one_name_are_two_boxes() -> None:
    picture = mermaid(catalog("interface Shared { a: I32 } node Shared implements Shared {}"))

    assert "node_Shared ..|> interface_Shared" in picture


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(plain_schemas())
def test_every_schema_has_a_picture_that_depends_on_its_meaning_only(text: str) -> None:
    made, again = catalog(text), catalog(text)

    assert mermaid(made) == mermaid(again)
    assert dot(made) == dot(again)
    assert all(edge.name in mermaid(made) for edge in made.edges)
