"""Identity: which stored type or property a declaration continues, and what columns they get."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import IdMinter
from omnigraph.catalog.model import AnyType, in_identity_order
from omnigraph.catalog.resolve import resolve_text
from omnigraph.language.diagnostics import SchemaError
from tests.language.strategies import plain_schemas
from tests.support.catalogs import catalog

ACCEPTED = """
interface I { shared: String }
node Old implements I { a: String @key b: I32? }
node Other { c: String? }
edge Knows: Old -> Other { since: Date? }
"""


def accepted() -> Catalog:
    return catalog(ACCEPTED)


@pytest.mark.parametrize(
    ("desired", "code", "fragment", "place"),
    [
        pytest.param(
            'node New @rename_from("Nope") {}',
            "PG701",
            'declares @rename_from("Nope") but no accepted declaration has that name',
            (1, 23),
            id="type-unknown",
        ),
        pytest.param(
            'node New @rename_from("Knows") {}',
            "PG702",
            "cannot rename accepted 'Knows' across declaration kinds",
            (1, 23),
            id="edge-to-node",
        ),
        pytest.param(
            'node New @rename_from("I") {}',
            "PG702",
            "cannot rename accepted 'I' across declaration kinds",
            (1, 23),
            id="interface-to-node",
        ),
        pytest.param(
            'node Other { d: String? @rename_from("nope") }',
            "PG703",
            "no accepted property with that name exists under the stable owner",
            (1, 38),
            id="property-unknown",
        ),
        pytest.param(
            'node Other { d: String? @rename_from("b") }',
            "PG704",
            "property moves across stable owners are not supported",
            (1, 38),
            id="property-of-another-type",
        ),
        pytest.param(
            'node New { d: String? @rename_from("c") }',
            "PG705",
            "cannot import property identity",
            (1, 36),
            id="property-of-a-new-type",
        ),
        pytest.param(
            'node Other { c: String? }\nnode New @rename_from("Other") { c: String? }',
            "PG706",
            "accepted node 'Other' is consumed by more than one desired declaration",
            (2, 23),
            id="type-claimed-twice",
        ),
        pytest.param(
            'node Other { c: String? d: String? @rename_from("c") }',
            "PG706",
            "is consumed by more than one desired declaration",
            (1, 49),
            id="property-claimed-twice",
        ),
    ],
)
def test_refused_renames(desired: str, code: str, fragment: str, place: tuple[int, int]) -> None:
    mint = IdMinter("c")

    with pytest.raises(SchemaError, match=r"^\S+ error\[PG\d+\]: catalog error:") as refused:
        resolve_text(desired, accepted(), mint)

    [finding] = refused.value.diagnostics
    assert (finding.code, finding.span and (finding.span.line, finding.span.column)) == (code, place)
    assert fragment in finding.message
    assert mint() == "c-0001", "a refused schema uses up no id"


def test_all_identity_errors_are_reported_at_once() -> None:
    with pytest.raises(SchemaError) as refused:
        resolve_text('node A @rename_from("X") {} node B @rename_from("Knows") {}', accepted(), IdMinter("c"))

    assert [d.code for d in refused.value.diagnostics] == ["PG701", "PG702"]


def test_a_rename_keeps_identity_and_column_and_references() -> None:
    before = accepted()
    after = catalog(
        """
        interface I { shared: String }
        node New implements I @@ { z: String @key @rename_from("a") b: I32? }
        node Other { c: String? }
        edge Likes: New -> Other @rename_from("Knows") { since: Date? }
        """.replace("implements I @@", '@rename_from("Old") implements I'),
        before,
    )

    old, new = before.node("Old"), after.node("New")
    assert (new.id, new.key) == (old.id, old.key)
    renamed = new.find("z")
    assert renamed is not None
    assert (renamed.id, renamed.column) == (old.property_by_id(old.key[0]).id, "a")
    assert after.edge("Likes").id == before.edge("Knows").id
    assert after.edge("Likes").source == old.id
    assert new.stored_schema.names == ["id", "b", "shared", "a"]


def test_an_exact_match_wins_and_the_hint_is_idle() -> None:
    resolution = resolve_text(
        ACCEPTED.replace("b: I32?", 'b: I32? @rename_from("a")'), accepted(), IdMinter("c")
    )

    assert [(n.code, n.rule.name) for n in resolution.notes] == [("PG801", "ignored_exact_match_rename_hint")]


def test_hints_in_the_first_schema_are_inert() -> None:
    resolution = resolve_text('node N @rename_from("M") { a: I32 @rename_from("b") }', None, IdMinter("c"))

    assert [n.rule.name for n in resolution.notes] == ["inert_initialization_rename_hint"] * 2


def test_an_inherited_hint_is_idle_where_there_is_nothing_to_rename() -> None:
    """Otherwise no new node could ever implement an interface whose property was once renamed."""
    before = catalog("interface I { a: String } node N implements I {}")

    resolution = resolve_text(
        'interface I { b: String @rename_from("a") } node N implements I {} node M implements I {}',
        before,
        IdMinter("c"),
    )

    assert [n.code for n in resolution.notes] == ["PG802"]
    renamed = resolution.catalog.node("N").find("b")
    assert renamed is not None
    assert renamed.column == "a"


def test_ids_are_allocated_types_first_then_properties_by_owner() -> None:
    made = resolve_text(
        "edge E: B -> A { w: I32 } node B { y: I32 x: I32 } node A { z: I32 } interface I { i: I32 }",
        None,
        IdMinter("c"),
    ).catalog

    types: list[AnyType] = [made.interface("I"), made.node("A"), made.node("B"), made.edge("E")]
    assert [t.id for t in types] == ["c-0001", "c-0002", "c-0003", "c-0004"]
    assert [[(p.name, p.id) for p in t.properties] for t in types] == [
        [("i", "c-0005")],
        [("z", "c-0006")],
        [("x", "c-0007"), ("y", "c-0008")],
        [("w", "c-0009")],
    ]


def test_key_members_are_ordered_by_identity_whatever_their_names() -> None:
    before = catalog("node N { tenant: String slot: I32 @key(tenant, slot) }")
    after = catalog('node N { tenant: String zz: I32 @rename_from("slot") @key(zz, tenant) }', before)

    assert after.node("N").key == before.node("N").key
    assert [after.node("N").name_of(p) for p in after.node("N").key] == ["zz", "tenant"]


def test_order_of_identity_holds_past_the_padding_of_the_counter() -> None:
    mint = IdMinter("c")
    allocated = [mint() for _ in range(10_005)]

    assert in_identity_order(reversed(allocated)) == tuple(allocated)


# -- columns -----------------------------------------------------------------------------------------


def columns(made: Catalog) -> dict[str, str]:
    return {p.name: p.column for p in made.node("N").properties}


def test_a_dropped_column_is_never_used_again() -> None:
    first = catalog("node N { a: String? b: I32? }")
    second = catalog("node N { b: I32? }", first)
    third = catalog("node N { a: String? b: I32? }", second)
    fourth = catalog("node N { b: I32? }", third)
    fifth = catalog("node N { a: I32? b: I32? }", fourth)

    assert second.node("N").retired_columns == ("a",)
    assert columns(third) == {"a": "a_2", "b": "b"}
    assert columns(fifth) == {"a": "a_3", "b": "b"}
    assert fifth.node("N").retired_columns == ("a", "a_2")
    ids = {p.id for made in (first, third, fifth) if (p := made.node("N").find("a"))}
    assert len(ids) == 3, "a name that comes back is a new property"


def test_a_new_property_under_the_old_name_of_a_renamed_one() -> None:
    first = catalog("node N { a: String? }")
    second = catalog('node N { b: String? @rename_from("a") }', first)
    third = catalog("node N { a: String? b: String? }", second)

    assert columns(third) == {"a": "a_2", "b": "a"}


def test_a_widened_property_moves_to_a_fresh_column_and_keeps_its_id() -> None:
    first = catalog("node N { a: I32 a_2: I32? }")
    second = catalog("node N { a: I64 a_2: I32? }", first)
    third = catalog("node N { a: I64? a_2: I32? }", second)

    assert columns(second) == {"a": "a_3", "a_2": "a_2"}
    assert second.node("N").retired_columns == ("a",)
    assert columns(third) == columns(second), "nullability does not touch the column"
    assert [p.id for p in second.node("N").properties] == [p.id for p in first.node("N").properties]


def test_dropped_then_added_type_is_a_new_one() -> None:
    first = catalog("node N { a: String }")
    third = catalog("node N { a: String }", catalog("", first))

    assert third.node("N").id != first.node("N").id
    assert third.node("N").retired_columns == ()


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(plain_schemas(), min_size=2, max_size=4))
def test_through_any_history_a_column_belongs_to_one_property_and_one_stored_type(texts: list[str]) -> None:
    owners: dict[tuple[str, str], tuple[str, pa.DataType]] = {}
    made: Catalog | None = None
    for text in texts:
        made = catalog(text, made)
        for table in made.tables:
            live = [p.column for p in table.properties]
            assert len({*live, "id"}) == len(live) + 1
            assert not {*live} & {*table.retired_columns}
            for declared in table.properties:
                place = table.id, declared.column
                owner = declared.id, declared.type.arrow
                assert owners.setdefault(place, owner) == owner
