"""Migration steps: what each change of a schema amounts to."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from omnigraph.catalog.plan import plan
from omnigraph.catalog.steps import (
    AddProperty,
    AddType,
    AlterProperty,
    DropProperty,
    Effect,
    Support,
)
from omnigraph.language.literals import NOW
from tests.language.strategies import plain_schemas
from tests.support.catalogs import catalog, migration, property_type

Json = dict[str, Any]
STRING = property_type("String")


class Migration(NamedTuple):
    """Two schemas and the steps between them, each without its effect; the effects are listed apart."""

    id: str
    before: str
    after: str
    steps: list[Json]
    effects: list[str]
    empty: tuple[str, ...] = ()


def on(kind: str, name: str, **more: Any) -> Json:
    """The fields of a step of a property or constraint."""
    return {"type_kind": kind, "type_name": name, **more}


def add(name: str, shape: Json, **more: Any) -> Json:
    """`add_property` on node N."""
    return {"kind": "add_property", **on("node", "N", property_name=name, property_type=shape), **more}


def alter(name: str, before: Json, after: Json, **more: Any) -> Json:
    """`alter_property` on node N."""
    place = on("node", "N", property_name=name)
    return {"kind": "alter_property", **place, "from": before, "to": after, **more}


def constrain(verb: str, constraint: Json, owner: str = "N", kind: str = "node", **more: Any) -> Json:
    """`add_constraint` or `drop_constraint`."""
    return {"kind": f"{verb}_constraint", **on(kind, owner, constraint=constraint), **more}


def refused(entity: str, code: str) -> Json:
    """An unsupported change; its reason is free text."""
    return {"kind": "unsupported_change", "entity": entity, "code": code}


def described(text: str) -> list[Json]:
    """The annotations of something with a description."""
    return [{"name": "description", "value": text, "arguments": {}}]


TYPES = [
    Migration(
        "add-types",
        "",
        "interface I {} node N { a: String @key } edge E: N -> N @card(0..1)",
        [
            {"kind": "add_type", "type_kind": "interface", "name": "I"},
            {"kind": "add_type", "type_kind": "node", "name": "N"},
            {"kind": "add_type", "type_kind": "edge", "name": "E"},
        ],
        ["metadata"] * 3,
    ),
    Migration(
        "drop-types",
        "node N {} node M {} edge E: N -> M",
        "node N {}",
        [
            {"kind": "drop_type", "type_kind": "node", "name": "M", "mode": "soft"},
            {"kind": "drop_type", "type_kind": "edge", "name": "E", "mode": "soft"},
        ],
        ["metadata"] * 2,
    ),
    Migration("drop-interface", "interface I {}", "", [refused("interface:I", "OG-BC-101")], ["metadata"]),
    Migration(
        "rename-type",
        "node N { a: String @key } edge E: N -> N { @unique(src) }",
        'node M @rename_from("N") { a: String @key } edge F: M -> M @rename_from("E") { @unique(src) }',
        [
            {"kind": "rename_type", "type_kind": "node", "from": "N", "to": "M"},
            {"kind": "rename_type", "type_kind": "edge", "from": "E", "to": "F"},
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "rename-type-without-hint",
        "node N {}",
        "node M {}",
        [
            {"kind": "add_type", "type_kind": "node", "name": "M"},
            {"kind": "drop_type", "type_kind": "node", "name": "N", "mode": "soft"},
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "interface-rename-is-add-and-refusal",
        "interface I { a: String } node N implements I {}",
        "interface J { a: String } node N implements J {}",
        [
            {"kind": "add_type", "type_kind": "interface", "name": "J"},
            refused("interface:I", "OG-BC-101"),
            {
                "kind": "update_type_metadata",
                "type_kind": "node",
                "name": "N",
                "annotations": [],
                "implements": ["J"],
            },
        ],
        ["metadata"] * 3,
    ),
    Migration(
        "order-of-kinds-and-names",
        "node B {} node Z {} edge Y: B -> B",
        "node A {} node B { x: I32? } edge X: A -> A interface I {}",
        [
            {"kind": "add_type", "type_kind": "interface", "name": "I"},
            {"kind": "add_type", "type_kind": "node", "name": "A"},
            {
                "kind": "add_property",
                **on("node", "B", property_name="x", property_type=property_type("I32", nullable=True)),
            },
            {"kind": "drop_type", "type_kind": "node", "name": "Z", "mode": "soft"},
            {"kind": "add_type", "type_kind": "edge", "name": "X"},
            {"kind": "drop_type", "type_kind": "edge", "name": "Y", "mode": "soft"},
        ],
        ["metadata"] * 6,
    ),
    Migration(
        "type-description",
        'node N @description("a") {}',
        'node N @description("b") {}',
        [{"kind": "update_type_metadata", "type_kind": "node", "name": "N", "annotations": described("b")}],
        ["metadata"],
    ),
    Migration(
        "custom-annotation",
        "node N {}",
        "node N @tier(2, k=true) {}",
        [
            {
                "kind": "update_type_metadata",
                "type_kind": "node",
                "name": "N",
                "annotations": [{"name": "tier", "value": "2", "arguments": {"k": "true"}}],
            }
        ],
        ["metadata"],
    ),
    Migration(
        "endpoints",
        "node N {} node M {} edge E: N -> N",
        "node N {} node M {} edge E: N -> M",
        [refused("edge:E", "OG-ED-101")],
        ["metadata"],
    ),
    Migration(
        "endpoints-of-renamed-type",
        "node N {} edge E: N -> N",
        'node M @rename_from("N") {} edge E: M -> M',
        [{"kind": "rename_type", "type_kind": "node", "from": "N", "to": "M"}],
        ["metadata"],
    ),
]

PROPERTIES = [
    Migration(
        "reorder",
        "node N { a: I32 b: enum(x, y) } node M {}",
        "node M {} node N { b: enum(y, x) a: I32 }",
        [],
        [],
    ),
    Migration(
        "add-nullable",
        "node N {}",
        "node N { a: String? }",
        [add("a", property_type("String", nullable=True))],
        ["metadata"],
    ),
    Migration(
        "add-required", "node N {}", "node N { a: String }", [refused("node:N.a", "OG-MF-103")], ["metadata"]
    ),
    Migration(
        "add-required-to-empty-type",
        "node N {}",
        "node N { a: String }",
        [add("a", STRING)],
        ["metadata"],
        empty=("N",),
    ),
    Migration(
        "add-required-with-default",
        "node N {}",
        "node N { a: I32 @default(7) }",
        [add("a", property_type("I32"), fill={"value": 7})],
        ["rewrite"],
    ),
    Migration(
        "add-nullable-with-default",
        "node N {}",
        "node N { a: DateTime? @default(now) }",
        [add("a", property_type("DateTime", nullable=True), fill={"now": True})],
        ["rewrite"],
    ),
    Migration(
        "add-vector-and-list",
        "node N {}",
        "node N { v: Vector(3)? w: [Date]? }",
        [
            add("v", property_type({"Vector": 3}, nullable=True)),
            add("w", property_type("Date", nullable=True, list=True)),
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "add-nullable-with-index",
        "node N {}",
        "node N { a: String? @index }",
        [
            add("a", property_type("String", nullable=True)),
            constrain("add", {"kind": "index", "properties": ["a"]}),
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "add-nullable-with-unique",
        "node N {}",
        "node N { a: String? @unique }",
        [
            add("a", property_type("String", nullable=True)),
            constrain("add", {"kind": "unique", "properties": ["a"]}),
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "add-default-with-unique-and-range",
        "node N {}",
        "node N { a: I32 @default(7) @unique @range(a, 1..9) }",
        [
            add("a", property_type("I32"), fill={"value": 7}),
            constrain("add", {"kind": "range", "property": "a", "min": 1, "max": 9}),
            constrain("add", {"kind": "unique", "properties": ["a"]}),
        ],
        ["rewrite", "scan", "scan"],
    ),
    Migration(
        "add-key-property",
        "node N {}",
        "node N { a: String @key }",
        [refused("node:N", "OG-MF-108"), refused("node:N.a", "OG-MF-103")],
        ["metadata"] * 2,
    ),
    Migration(
        "rename-property",
        'node N { a: String @key b: String? @unique v: Vector(2)? @embed(b) @check(b, "x") }',
        'node N { c: String @key @rename_from("a") d: String? @unique @rename_from("b") '
        'v: Vector(2)? @embed(d) @check(d, "x") }',
        [
            {"kind": "rename_property", **on("node", "N", **{"from": "a", "to": "c"})},
            {"kind": "rename_property", **on("node", "N", **{"from": "b", "to": "d"})},
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "rename-required-property-without-hint",
        "node N { a: String }",
        "node N { b: String }",
        [
            refused("node:N.b", "OG-MF-103"),
            {"kind": "drop_property", **on("node", "N", property_name="a", mode="soft")},
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "drop-property",
        "node N { a: String }",
        "node N {}",
        [{"kind": "drop_property", **on("node", "N", property_name="a", mode="soft")}],
        ["metadata"],
    ),
    Migration(
        "drop-indexed-property",
        "node N { a: String @index b: I32 @index(a, b) }",
        "node N { b: I32 }",
        [{"kind": "drop_property", **on("node", "N", property_name="a", mode="soft")}],
        ["metadata"],
    ),
    Migration(
        "drop-constrained-property",
        "node N { a: I32 @unique @range(a, 1..2) }",
        "node N {}",
        [
            {"kind": "drop_property", **on("node", "N", property_name="a", mode="soft")},
            constrain("drop", {"kind": "range", "property": "a", "min": 1, "max": 2}),
            constrain("drop", {"kind": "unique", "properties": ["a"]}),
        ],
        ["metadata"] * 3,
    ),
    Migration(
        "drop-key-property",
        "node N { a: String @key }",
        "node N {}",
        [
            refused("node:N", "OG-MF-108"),
            {"kind": "drop_property", **on("node", "N", property_name="a", mode="soft")},
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "extend-enum",
        "node N { a: enum(x, y) }",
        "node N { a: enum(z, y, x, w) }",
        [{"kind": "extend_enum", **on("node", "N", property_name="a", added_values=["w", "z"])}],
        ["metadata"],
    ),
    Migration(
        "rename-before-extension",
        "node N { a: enum(x) }",
        'node N { b: enum(x, y) @rename_from("a") }',
        [
            {"kind": "rename_property", **on("node", "N", **{"from": "a", "to": "b"})},
            {"kind": "extend_enum", **on("node", "N", property_name="b", added_values=["y"])},
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "narrow-enum",
        "node N { a: enum(x, y) }",
        "node N { a: enum(x) }",
        [constrain("add", {"kind": "enum", "property": "a", "values": ["x"]})],
        ["scan"],
    ),
    Migration(
        "rename-enum-value",
        "node N { a: enum(x, y) }",
        "node N { a: enum(x, z) }",
        [
            {"kind": "extend_enum", **on("node", "N", property_name="a", added_values=["z"])},
            constrain("add", {"kind": "enum", "property": "a", "values": ["x", "z"]}),
        ],
        ["metadata", "scan"],
    ),
    *(
        Migration(
            f"refuse-{before}-to-{after}",
            f"node N {{ a: {before} }}",
            f"node N {{ a: {after} }}",
            [refused("node:N.a", "OG-MF-106")],
            ["metadata"],
        )
        for before, after in [
            ("enum(x)", "String"),
            ("String", "enum(x)"),
            ("I64", "I32"),
            ("I32", "U32"),
            ("I32", "F64"),
            ("U32", "I64"),
            ("F64", "F32"),
            ("DateTime", "Date"),
            ("String", "I32"),
            ("String", "[String]"),
            ("[I32]", "[I64]"),
            ("Vector(2)", "Vector(3)"),
        ]
    ),
    *(
        Migration(
            f"widen-{before}",
            f"node N {{ a: {before} }}",
            f"node N {{ a: {after} }}",
            [alter("a", property_type(before), property_type(after))],
            ["rewrite"],
        )
        for before, after in [("I32", "I64"), ("U32", "U64"), ("F32", "F64"), ("Date", "DateTime")]
    ),
    Migration(
        "widen-integer-key",
        "node N { a: I32 @key }",
        "node N { a: I64 @key }",
        [alter("a", property_type("I32"), property_type("I64"))],
        ["rewrite"],
    ),
    *(
        Migration(
            f"refuse-widening-{before}-key",
            f"node N {{ a: {before} @key }}",
            f"node N {{ a: {after} @key }}",
            [refused("node:N.a", "OG-MF-108")],
            ["metadata"],
        )
        for before, after in [("F32", "F64"), ("Date", "DateTime")]
    ),
    Migration(
        "required-to-nullable",
        "node N { a: I32 }",
        "node N { a: I32? }",
        [alter("a", property_type("I32"), property_type("I32", nullable=True))],
        ["metadata"],
    ),
    Migration(
        "nullable-to-required",
        "node N { a: I32? }",
        "node N { a: I32 }",
        [alter("a", property_type("I32", nullable=True), property_type("I32"))],
        ["scan"],
    ),
    Migration(
        "nullable-to-required-with-default",
        "node N { a: I32? @default(3) }",
        "node N { a: I32 @default(3) }",
        [alter("a", property_type("I32", nullable=True), property_type("I32"), fill={"value": 3})],
        ["rewrite"],
    ),
    Migration(
        "property-description-and-default",
        "node N { a: I32 }",
        'node N { a: I32 @description("x") @default(3) }',
        [
            {
                "kind": "update_property_metadata",
                **on("node", "N", property_name="a"),
                "annotations": [{"name": "default", "value": "3", "arguments": {}}, *described("x")],
            }
        ],
        ["metadata"],
    ),
    Migration(
        "embed-changed",
        'node N { s: String t: String v: Vector(2)? @embed(s, model="m") }',
        'node N { s: String t: String v: Vector(2)? @embed("t", model="n") }',
        [
            {
                "kind": "change_embed",
                **on("node", "N", property_name="v"),
                "from": {"source": "s", "model": "m"},
                "to": {"source": "t", "model": "n"},
            }
        ],
        ["rewrite"],
    ),
    Migration(
        "embed-added",
        "node N { s: String v: Vector(2)? }",
        "node N { s: String v: Vector(2)? @embed(s) }",
        [refused("node:N.v", "OG-VE-102")],
        ["metadata"],
    ),
    Migration(
        "embed-removed",
        "node N { s: String v: Vector(2)? @embed(s) }",
        "node N { s: String v: Vector(2)? }",
        [refused("node:N.v", "OG-VE-102")],
        ["metadata"],
    ),
    Migration(
        "edge-property",
        "node N {} edge E: N -> N",
        "node N {} edge E: N -> N { w: F32? }",
        [
            {
                "kind": "add_property",
                **on("edge", "E", property_name="w", property_type=property_type("F32", nullable=True)),
            }
        ],
        ["metadata"],
    ),
]

UNIQUE_A: Json = {"kind": "unique", "properties": ["a"]}


def in_range(low: float | None, high: float | None) -> Json:
    """The JSON form of a range on property a."""
    return {"kind": "range", "property": "a", "min": low, "max": high}


def card(low: int, high: int | None) -> Json:
    """The JSON form of a cardinality."""
    return {"kind": "card", "min": low, "max": high}


CONSTRAINTS = [
    Migration(
        "add-constraints",
        "node N { a: I32 b: String }",
        'node N { a: I32 b: String @unique(b, a) @range(a, 1..) @check(b, "^x") @index(a, b) @index(b) }',
        [
            constrain("add", {"kind": "check", "property": "b", "pattern": "^x"}),
            constrain("add", {"kind": "index", "properties": ["a", "b"]}),
            constrain("add", {"kind": "index", "properties": ["b"]}),
            constrain("add", in_range(1, None)),
            constrain("add", {"kind": "unique", "properties": ["a", "b"]}),
        ],
        ["scan", "metadata", "metadata", "scan", "scan"],
    ),
    Migration(
        "add-constraint-to-empty-type",
        "node N { a: I32 }",
        "node N { a: I32 @unique }",
        [constrain("add", UNIQUE_A)],
        ["metadata"],
        empty=("N",),
    ),
    Migration(
        "drop-constraints",
        'node N { a: I32 @unique @index b: String @check(b, "x") @range(a, 1..) }',
        "node N { a: I32 b: String }",
        [
            constrain("drop", {"kind": "check", "property": "b", "pattern": "x"}),
            constrain("drop", {"kind": "index", "properties": ["a"]}),
            constrain("drop", in_range(1, None)),
            constrain("drop", UNIQUE_A),
        ],
        ["metadata"] * 4,
    ),
    Migration(
        "inline-to-body", "node N { a: I32 @unique @index }", "node N { a: I32 @index(a) @unique(a) }", [], []
    ),
    Migration("inline-key-to-body", "node N { a: I32 @key }", "node N { a: I32 @key(a) }", [], []),
    Migration(
        "repeated-constraint", "node N { a: I32 @unique }", "node N { a: I32 @unique @unique(a, a) }", [], []
    ),
    Migration(
        "tighten-range",
        "node N { a: I32 @range(a, 1..10) }",
        "node N { a: I32 @range(a, 2..10) }",
        [constrain("add", in_range(2, 10), replaces=in_range(1, 10))],
        ["scan"],
    ),
    Migration(
        "shift-range",
        "node N { a: I32 @range(a, 1..10) }",
        "node N { a: I32 @range(a, 2..) }",
        [constrain("add", in_range(2, None), replaces=in_range(1, 10))],
        ["scan"],
    ),
    Migration(
        "loosen-range",
        "node N { a: I32 @range(a, 1..10) }",
        "node N { a: I32 @range(a, ..10.5) }",
        [constrain("drop", in_range(1, 10), replaced_by=in_range(None, 10.5))],
        ["metadata"],
    ),
    Migration(
        "same-range", "node N { a: I32 @range(a, 1..10) }", "node N { a: I32 @range(a, 1.0..010) }", [], []
    ),
    Migration(
        "change-pattern",
        'node N { a: String @check(a, "x") }',
        'node N { a: String @check(a, "y") }',
        [
            constrain("add", {"kind": "check", "property": "a", "pattern": "y"}),
            constrain("drop", {"kind": "check", "property": "a", "pattern": "x"}),
        ],
        ["scan", "metadata"],
    ),
    Migration(
        "add-card",
        "node N {} edge E: N -> N",
        "node N {} edge E: N -> N @card(0..1)",
        [constrain("add", card(0, 1), "E", "edge")],
        ["scan"],
    ),
    Migration(
        "tighten-card",
        "node N {} edge E: N -> N @card(0..5)",
        "node N {} edge E: N -> N @card(1..)",
        [constrain("add", card(1, None), "E", "edge", replaces=card(0, 5))],
        ["scan"],
    ),
    Migration(
        "loosen-card",
        "node N {} edge E: N -> N @card(1..5)",
        "node N {} edge E: N -> N @card(0..9)",
        [constrain("drop", card(1, 5), "E", "edge", replaced_by=card(0, 9))],
        ["metadata"],
    ),
    Migration(
        "drop-card",
        "node N {} edge E: N -> N @card(1..5)",
        "node N {} edge E: N -> N @card(0..)",
        [constrain("drop", card(1, 5), "E", "edge")],
        ["metadata"],
    ),
    Migration(
        "edge-unique",
        "node N {} edge E: N -> N",
        "node N {} edge E: N -> N { @unique(src, dst) }",
        [constrain("add", {"kind": "unique", "properties": ["dst", "src"]}, "E", "edge")],
        ["scan"],
    ),
    *(
        Migration(f"key-{index}", before, after, [refused("node:N", "OG-MF-108")], ["metadata"])
        for index, (before, after) in enumerate(
            [
                ("node N { a: I32 }", "node N { a: I32 @key }"),
                ("node N { a: I32 @key }", "node N { a: I32 }"),
                ("node N { a: I32 b: I32 @key(a) }", "node N { a: I32 b: I32 @key(a, b) }"),
            ]
        )
    ),
]

ORDER = [
    Migration(
        "order-inside-a-type",
        "node N { a: I32 @key b: enum(x) c: I32? d: I32? }",
        'node M @rename_from("N") @tier(1) '
        '{ a: I32 e: enum(x, y) @rename_from("b") c: I32? @unique aa: I32? }',
        [
            {"kind": "rename_type", "type_kind": "node", "from": "N", "to": "M"},
            refused("node:M", "OG-MF-108"),
            {
                "kind": "update_type_metadata",
                "type_kind": "node",
                "name": "M",
                "annotations": [{"name": "tier", "value": "1", "arguments": {}}],
            },
            {
                "kind": "add_property",
                **on("node", "M", property_name="aa", property_type=property_type("I32", nullable=True)),
            },
            {"kind": "rename_property", **on("node", "M", **{"from": "b", "to": "e"})},
            {"kind": "extend_enum", **on("node", "M", property_name="e", added_values=["y"])},
            {"kind": "drop_property", **on("node", "M", property_name="d", mode="soft")},
            constrain("add", {"kind": "unique", "properties": ["c"]}, "M"),
        ],
        ["metadata"] * 7 + ["scan"],
    ),
]

INTERFACES = [
    Migration(
        "interface-gains-property",
        "interface I {} node N implements I {}",
        "interface I { a: String? } node N implements I {}",
        [
            {
                "kind": "add_property",
                **on(
                    "interface", "I", property_name="a", property_type=property_type("String", nullable=True)
                ),
            },
            add("a", property_type("String", nullable=True)),
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "interface-loses-property",
        "interface I { a: String } node N implements I {}",
        "interface I {} node N implements I {}",
        [
            {"kind": "drop_property", **on("interface", "I", property_name="a", mode="soft")},
            {"kind": "drop_property", **on("node", "N", property_name="a", mode="soft")},
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "interface-renames-property",
        "interface I { a: String @key } node N implements I {}",
        'interface I { b: String @key @rename_from("a") } node N implements I {}',
        [
            {"kind": "rename_property", **on("interface", "I", **{"from": "a", "to": "b"})},
            {"kind": "rename_property", **on("node", "N", **{"from": "a", "to": "b"})},
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "interface-adds-index",
        "interface I { a: String } node N implements I {}",
        "interface I { a: String @index } node N implements I {}",
        [
            {
                "kind": "update_property_metadata",
                **on("interface", "I", property_name="a"),
                "annotations": [{"name": "index", "value": None, "arguments": {}}],
            },
            constrain("add", {"kind": "index", "properties": ["a"]}),
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "interface-extends-enum",
        "interface I { a: enum(x) } node N implements I {}",
        "interface I { a: enum(x, y) } node N implements I {}",
        [
            {"kind": "extend_enum", **on("interface", "I", property_name="a", added_values=["y"])},
            {"kind": "extend_enum", **on("node", "N", property_name="a", added_values=["y"])},
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "interface-narrows-enum-without-nodes",
        "interface I { a: enum(x, y) }",
        "interface I { a: enum(x) }",
        [
            {
                "kind": "alter_property",
                **on("interface", "I", property_name="a"),
                "from": property_type("String", enum_values=["x", "y"]),
                "to": property_type("String", enum_values=["x"]),
            }
        ],
        ["metadata"],
    ),
    Migration(
        "implements-added",
        "interface I { a: String? } node N {}",
        "interface I { a: String? } node N implements I {}",
        [
            {
                "kind": "update_type_metadata",
                "type_kind": "node",
                "name": "N",
                "annotations": [],
                "implements": ["I"],
            },
            add("a", property_type("String", nullable=True)),
        ],
        ["metadata"] * 2,
    ),
    Migration(
        "inherited-to-own",
        "interface I { a: String } node N implements I {}",
        "interface I { a: String } node N implements I { a: String }",
        [],
        [],
    ),
]

MIGRATIONS = [*TYPES, *PROPERTIES, *CONSTRAINTS, *ORDER, *INTERFACES]


@pytest.mark.parametrize("case", MIGRATIONS, ids=[case.id for case in MIGRATIONS])
def test_steps(case: Migration) -> None:
    found = migration(case.before, case.after, empty=case.empty).to_json()

    effects = [step.pop("effect") for step in found["steps"]]
    for step in found["steps"]:
        step.pop("reason", None)
    assert found["steps"] == case.steps
    assert effects == case.effects
    assert found["supported"] == all(step["kind"] != "unsupported_change" for step in case.steps)


def test_allow_data_loss_makes_every_drop_hard_and_nothing_supported() -> None:
    before = "node N { a: I32 b: I32 } node M {}"

    found = migration(before, "node N { b: String }", allow_data_loss=True)

    assert [s["mode"] for s in found.to_json()["steps"] if "mode" in s] == ["hard", "hard"]
    assert not found.supported


def test_refusal_shows_how_to_add_a_default() -> None:
    refusals = migration(
        "node N {}",
        "node N { a: enum(x, y) b: String c: Bool d: DateTime e: F64 f: Vector(2) g: U32 }",
    ).refusals

    shown = [r.message.partition("write ")[2] for r in refusals]
    assert shown == [
        """'a: enum(x, y) @default("x")', or 'a: enum(x, y)?'""",
        """'b: String @default("")', or 'b: String?'""",
        "'c: Bool @default(false)', or 'c: Bool?'",
        "'d: DateTime @default(now)', or 'd: DateTime?'",
        "'e: F64 @default(0.0)', or 'e: F64?'",
        "'f: Vector(2)?'",
        "'g: U32 @default(0)', or 'g: U32?'",
    ]
    assert refusals[0].message.startswith("[OG-MF-103] node:N.a: ")


def test_steps_carry_what_their_execution_needs() -> None:
    before = "node N { a: I32? b: I32 }"
    after = "node N { a: I64 @default(5) c: DateTime @default(now) } node M { x: String }"

    steps = migration(before, after).steps

    added_type = next(s for s in steps if isinstance(s, AddType))
    assert added_type.stored_schema is not None
    assert added_type.stored_schema.names == ["id", "x"]
    added = next(s for s in steps if isinstance(s, AddProperty))
    assert (added.field, added.fill) == (pa.field("c", pa.date64()), NOW)
    altered = next(s for s in steps if isinstance(s, AlterProperty))
    assert (altered.old_column, altered.new_column, altered.fill) == ("a", "a_2", 5)
    assert altered.field == pa.field("a_2", pa.int64())
    dropped = next(s for s in steps if isinstance(s, DropProperty))
    assert (dropped.column, dropped.support) == ("b", Support.DESTRUCTIVE)


def test_the_plan_knows_its_costliest_effect() -> None:
    assert migration("node N { a: I32 }", "node N { a: I32 @index }").effect is Effect.METADATA
    assert migration("node N { a: I32 }", "node N { a: I32 @unique }").effect is Effect.SCAN
    assert migration("node N { a: I32 }", "node N { a: I64 @unique }").effect is Effect.REWRITE


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(plain_schemas(), plain_schemas())
def test_no_steps_means_equal_digests_and_the_other_way_round(before: str, after: str) -> None:
    """For any two schemas at all; and planning neither fails nor depends on anything but its arguments."""
    accepted = catalog(before)
    desired = catalog(after, accepted)

    found = plan(accepted, desired)

    assert (found.steps == ()) == (accepted.declaration_digest == desired.declaration_digest)
    assert found.to_json() == plan(accepted, desired).to_json()
    assert plan(desired, desired).steps == ()
