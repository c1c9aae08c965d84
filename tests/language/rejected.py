"""Every construct that the language refuses: where it is reported, under which code, in which words.

A `§` in a text marks the place of the finding and is taken out before the text is parsed.
"""

from __future__ import annotations

from typing import NamedTuple


class Rejected(NamedTuple):
    """A text with one mistake."""

    id: str
    text: str
    code: str
    fragment: str


GRAMMAR = [
    Rejected("comma-between-properties", "node N { a: String§, b: I32 }", "PG101", "unexpected ','"),
    Rejected("missing-colon", "node N { a §String }", "PG101", "expected ':'"),
    Rejected("missing-brace", "node N { a: String§", "PG101", "'}'"),
    Rejected("missing-arrow", "node A {}\nedge E: A §A", "PG101", "expected '->'"),
    Rejected("stray-brace", "node A {} §}", "PG101", "expected 'interface', 'node' or 'edge'"),
    Rejected("keyword-needs-boundary", "§nodeBook {}", "PG101", "unexpected 'nodeBook'"),
    Rejected("hash-is-no-comment", "§# hello\nnode A {}", "PG101", "unexpected '#'"),
    Rejected("trailing-comma-in-enum", "node N { a: enum(x, y, §) }", "PG101", "unexpected ')'"),
    Rejected("empty-enum", "node N { a: enum(§) }", "PG101", "an enum value"),
    Rejected("trailing-comma-in-constraint", "node N { a: String @unique(a,§) }", "PG101", "unexpected ')'"),
    Rejected("star-in-card", "node A {}\nedge E: A -> A @card(1..§*)", "PG101", "unexpected '*'"),
    Rejected("float-without-digits", "node N { a: F64 @tier(1§.) }", "PG101", "unexpected"),
    Rejected("exponent", "node N { a: F64 @tier(§1e5) }", "PG101", "unexpected"),
    Rejected("nested-comment", "/* a /* b */ §*/ node A {}", "PG101", "unexpected '*'"),
    Rejected("non-ascii-name", "node N { §é: String }", "PG101", "unexpected 'é'"),
    Rejected("open-string", 'node N @description(§"abc) {}', "PG102", "string is never closed"),
    Rejected("open-comment", "node N {} §/* abc", "PG102", "comment is never closed"),
    Rejected("lower-case-type", "node §person {}", "PG104", "upper-case"),
    Rejected("upper-case-property", "node N { §Name: String }", "PG104", "lower-case"),
    Rejected("unknown-type", "node N { a: §Stringy }", "PG105", "unknown type 'Stringy'"),
    Rejected("list-of-nullable", "node N { a: [§String?] }", "PG106", "cannot be nullable"),
    Rejected("list-of-enum", "node N { a: §[enum(x)] }", "PG106", "list of enums"),
    Rejected("list-of-vector", "node N { a: §[Vector(3)] }", "PG106", "list of vectors"),
    Rejected("list-of-list", "node N { a: §[[String]] }", "PG106", "list of lists"),
    Rejected("vector-without-dimension", "node N { a: §Vector }", "PG106", "needs a dimension"),
    Rejected("scalar-with-arguments", "node N { a: String§(3) }", "PG106", "takes no arguments"),
    Rejected("quoted-variant", 'node N { a: enum(§"x") }', "PG106", "not quoted"),
    Rejected(
        "card-after-annotation",
        'node A {}\nedge E: A -> A @description("x") §@card(0..1)',
        "PG107",
        "@card must directly follow",
    ),
    Rejected("card-on-property", "node N { a: String §@card(0..1) }", "PG107", "@card must directly follow"),
    Rejected(
        "annotation-after-implements",
        'interface I {}\nnode N implements I §@description("x") {}',
        "PG107",
        "before 'implements'",
    ),
    Rejected(
        "implements-twice", "interface I {}\nnode N implements I §implements I {}", "PG107", "given twice"
    ),
    Rejected(
        "edge-implements", "interface I {}\nnode A {}\nedge E: A -> A §implements I", "PG107", "only a node"
    ),
    Rejected("interface-annotation", "interface I §@x {}", "PG107", "takes no annotations"),
    Rejected(
        "interface-extends", "interface J {}\ninterface I §implements J {}", "PG107", "extends no other"
    ),
    Rejected("interface-constraint", "interface I { a: String §@key(a) }", "PG107", "no body constraints"),
    Rejected(
        "annotation-after-constraint",
        "node N { a: String @index(a) §@tier(2) }",
        "PG107",
        "follows no property",
    ),
    Rejected(
        "keyword-without-positional",
        'node N @tier(§model="m") {}',
        "PG108",
        "keyword argument before its positional",
    ),
    Rejected("two-positionals", "node N @tier(1, §2) {}", "PG108", "one positional argument"),
    Rejected("repeated-keyword", "node N @tier(1, a=1, §a=2) {}", "PG108", "'a=' is given twice"),
    Rejected("negative-outside-range", "node N @tier(§-1) {}", "PG108", "negative number"),
    Rejected("bounds-in-annotation", "node N @tier(§1..2) {}", "PG108", "bounds are no argument"),
    Rejected("bare-type-name", "node N @tier(§Old) {}", "PG108", "found 'Old'"),
    Rejected("bare-keyword-value", "node N @tier(1, a=§b) {}", "PG108", "expected a literal"),
    Rejected("empty-parentheses", "node N @tier§() {}", "PG108", "empty parentheses"),
]

VALUES = [
    *(
        Rejected(
            f"reserved-{name}",
            f"node N {{ §{name}: String }}",
            "PG201",
            f"property name '{name}' is reserved",
        )
        for name in (
            "_rowid",
            "_rowaddr",
            "_rowoffset",
            "_row_created_at_version",
            "_row_last_updated_at_version",
            "id",
        )
    ),
    Rejected(
        "reserved-in-interface", "interface I { §id: String }", "PG201", "property name 'id' is reserved"
    ),
    *(
        Rejected(
            f"reserved-on-edge-{name}",
            f"node A {{}}\nedge E: A -> A {{ §{name}: String }}",
            "PG201",
            f"property name '{name}' is reserved",
        )
        for name in ("src", "dst", "from", "to", "id", "_rowid")
    ),
    Rejected("vector-0", "node N { a: §Vector(0) }", "PG202", "Vector dimension must be greater than zero"),
    Rejected(
        "vector-2^31", "node N { a: §Vector(2147483648) }", "PG202", "exceeds maximum supported 2147483647"
    ),
    Rejected("vector-2^32", "node N { a: §Vector(4294967296) }", "PG202", "invalid Vector dimension"),
    Rejected("vector-float", "node N { a: §Vector(1.5) }", "PG202", "invalid Vector dimension"),
    Rejected("vector-name", "node N { a: §Vector(n) }", "PG202", "invalid Vector dimension"),
    Rejected("list-of-blob", "node N { a: §[Blob] }", "PG203", "list of Blob is not supported"),
    Rejected(
        "repeated-variant",
        "node N { a: enum(x, y, §x) }",
        "PG204",
        "enum type cannot include duplicate values",
    ),
    Rejected("bad-escape", 'node N @description("a §\\q b") {}', "PG205", "unsupported escape sequence: \\q"),
    Rejected(
        "card-order", "node A {}\nedge E: A -> A §@card(3..1)", "PG206", "cardinality min (3) exceeds max (1)"
    ),
    Rejected(
        "card-min-large", "node A {}\nedge E: A -> A §@card(4294967296..)", "PG206", "invalid cardinality min"
    ),
    Rejected(
        "card-max-large",
        "node A {}\nedge E: A -> A §@card(0..4294967296)",
        "PG206",
        "invalid cardinality max",
    ),
    Rejected("card-negative", "node A {}\nedge E: A -> A §@card(-1..1)", "PG206", "invalid cardinality min"),
    Rejected("card-bare", "node A {}\nedge E: A -> A §@card", "PG206", "invalid cardinality"),
    Rejected(
        "unique-string",
        'node N { email: String @unique(§"x") }',
        "PG207",
        "expected property name in constraint",
    ),
    Rejected("key-empty", "node N { a: String §@key() }", "PG207", "expected property name in constraint"),
    Rejected(
        "range-on-string-name", 'node N { a: I32 @range(§"a", 1..2) }', "PG207", "expected property name"
    ),
    Rejected(
        "range-no-bounds", "node N { a: I32 §@range(a) }", "PG208", "@range requires property name and bounds"
    ),
    Rejected(
        "range-wrong-bounds", 'node N { a: I32 @range(a, §"x") }', "PG208", "expected range bounds (min..max)"
    ),
    Rejected(
        "range-one-number", "node N { a: I32 @range(a, §5) }", "PG208", "expected range bounds (min..max)"
    ),
    Rejected("range-open", "node N { a: I32 @range(a, §..) }", "PG208", "expected range bounds (min..max)"),
    Rejected(
        "check-no-pattern",
        "node N { a: String §@check(a) }",
        "PG209",
        "@check requires property name and pattern",
    ),
    Rejected(
        "check-no-string",
        "node N { a: String @check(a, §b) }",
        "PG209",
        "expected string argument in constraint",
    ),
]

INTERFACES = [
    Rejected(
        "unknown-interface", "node N implements §I {}", "PG301", "node N implements unknown interface 'I'"
    ),
    *(
        Rejected(
            f"type-disagreement-{index}",
            f"interface I {{ p: {theirs} }}\nnode N implements I {{ p: §{ours} }}",
            "PG302",
            f"node N property 'p' has type {ours} but interface I declares it as {theirs}",
        )
        for index, (ours, theirs) in enumerate(
            [("I32", "I64"), ("I32", "I32?"), ("[String]", "String"), ("enum(a)", "enum(a, b)")]
        )
    ),
    Rejected(
        "interfaces-disagree-in-type",
        "interface I { p: I32 }\ninterface J { p: I64 }\nnode N implements I, §J {}",
        "PG302",
        "node N property 'p' has type I32 but interface J declares it as I64",
    ),
]

ANNOTATIONS = [
    Rejected(
        "rename-no-value",
        "node N §@rename_from {}",
        "PG401",
        "requires exactly one non-empty positional value",
    ),
    Rejected(
        "rename-blank", 'node N §@rename_from(" ") {}', "PG401", "requires exactly one non-empty positional"
    ),
    Rejected(
        "rename-property-blank",
        'node N { a: String §@rename_from("") }',
        "PG401",
        "non-empty positional value",
    ),
    Rejected(
        "rename-twice",
        'node N @rename_from("A") §@rename_from("B") {}',
        "PG402",
        "declares @rename_from multiple times",
    ),
    Rejected(
        "rename-kwargs", 'node N @rename_from("A", §x=1) {}', "PG403", "does not accept keyword arguments"
    ),
    *(
        Rejected(
            f"{name}-on-node",
            f"node N §@{name} {{}}",
            "PG404",
            f"@{name} is only supported on node properties or as body constraint (node N)",
        )
        for name in ("key", "unique", "index", "embed")
    ),
    Rejected(
        "key-list-on-node",
        "node N §@key(a) { a: String }",
        "PG404",
        "@key is only supported on node properties",
    ),
    *(
        Rejected(
            f"{name}-on-edge",
            f"node A {{}}\nedge E: A -> A §@{name}",
            "PG405",
            f"@{name} is not supported on edges (edge E)",
        )
        for name in ("key", "unique", "index", "embed")
    ),
    Rejected("description-missing", "node N §@description {}", "PG406", "requires a non-empty value"),
    Rejected(
        "description-blank", 'node N { a: String §@description("") }', "PG406", "requires a non-empty value"
    ),
    Rejected(
        "instruction-blank",
        'node A {}\nedge E: A -> A §@instruction(" ")',
        "PG406",
        "requires a non-empty value",
    ),
    Rejected(
        "description-twice",
        'node N @description("a") §@description("b") {}',
        "PG407",
        "node N declares @description multiple times",
    ),
    Rejected(
        "instruction-on-property",
        'node N { p: String §@instruction("x") }',
        "PG408",
        "@instruction is only supported on node and edge types (property N.p)",
    ),
    *(
        Rejected(
            f"{name}-on-list",
            f"node N {{ p: [String] §@{name} }}",
            "PG409",
            f"@{name} is not supported on list property N.p",
        )
        for name in ("key", "unique", "index", "embed")
    ),
    *(
        Rejected(
            f"{name}-on-vector",
            f"node N {{ p: Vector(3) §@{name} }}",
            "PG410",
            f"@{name} is not supported on vector property N.p",
        )
        for name in ("key", "unique")
    ),
    *(
        Rejected(
            f"{name}-on-blob",
            f"node N {{ p: Blob §@{name} }}",
            "PG411",
            f"@{name} is not supported on blob property N.p",
        )
        for name in ("key", "unique", "index", "embed")
    ),
    *(
        Rejected(
            f"{name}-on-edge-property",
            f"node A {{}}\nedge E: A -> A {{ p: {kind} §@{name} }}",
            "PG412",
            f"@{name} is not supported on edge properties (edge E.p)",
        )
        for name, kind in (("key", "String"), ("embed", "Vector(3)"))
    ),
    *(
        Rejected(
            f"{name}-repeated",
            f"node N {{ p: String @{name} §@{name} }}",
            "PG413",
            f"property N.p declares @{name} multiple times",
        )
        for name in ("key", "unique", "index")
    ),
    Rejected(
        "embed-on-string",
        'node N { p: String §@embed("p") }',
        "PG414",
        "@embed is only supported on vector properties (N.p)",
    ),
    Rejected(
        "embed-no-source", "node N { p: Vector(3) §@embed }", "PG415", "requires a source property name"
    ),
    Rejected(
        "embed-blank",
        'node N { p: Vector(3) @embed(§" ") }',
        "PG415",
        "requires a non-empty source property name",
    ),
    Rejected(
        "embed-unknown", "node N { p: Vector(3) @embed(§s) }", "PG415", "references unknown source property s"
    ),
    Rejected(
        "embed-not-string",
        "node N { s: I32 p: Vector(3) @embed(§s) }",
        "PG415",
        "@embed source property N.s must be String",
    ),
    Rejected(
        "embed-list",
        'node N { s: [String] p: Vector(3) @embed(§"s") }',
        "PG415",
        "@embed source property N.s must be String",
    ),
    Rejected(
        "embed-kwarg",
        'node N { s: String p: Vector(3) @embed("s", §k=1) }',
        "PG416",
        "has unknown argument 'k=' (only 'model' is supported)",
    ),
    Rejected(
        "interface-annotation-lands",
        "interface I { p: [String] §@key }\nnode N implements I {}",
        "PG409",
        "@key is not supported on list property N.p",
    ),
    Rejected("default-on-type", "node N §@default(1) {}", "PG417", "only supported on properties"),
    Rejected("default-without-value", "node N { p: I32 §@default }", "PG417", "requires exactly one value"),
    Rejected(
        "default-twice",
        "node N { p: I32 @default(1) §@default(2) }",
        "PG417",
        "declares @default multiple times",
    ),
    *(
        Rejected(
            f"default-misfit-{index}",
            f"node N {{ p: {kind} @default(§{value}) }}",
            "PG418",
            f"does not fit its type {kind}",
        )
        for index, (kind, value) in enumerate(
            [
                ("I32", '"a"'),
                ("I32", "2147483648"),
                ("I32", "1.0"),
                ("U32", "-1"),
                ("U64", "18446744073709551616"),
                ("I64", "9" * 5000),
                ("Bool", "1"),
                ("String", "1"),
                ("String", "now"),
                ("F32", "9" * 60),
                ("F64", "9" * 400),
                ("F64", "true"),
                ("Date", '"2026-02-30"'),
                ("Date", '"2026-01-01T00:00:00Z"'),
                ("DateTime", '"yesterday"'),
                ("DateTime", "5"),
                ("enum(a, b)", '"c"'),
                ("enum(a, b)", "a"),
                ("[String]", '"a"'),
                ("Vector(3)", "0"),
                ("Blob", '"x"'),
            ]
        )
    ),
]

CONSTRAINTS = [
    *(
        Rejected(
            f"{name}-in-edge-body",
            f"node A {{}}\nedge E: A -> A {{ p: {kind} §@{name}({arguments}) }}",
            "PG501",
            f"@{name} constraint is not supported on edges (edge E)",
        )
        for name, kind, arguments in (
            ("range", "I32", "p, 1..2"),
            ("check", "String", 'p, "a"'),
        )
    ),
    *(
        Rejected(
            f"edge-key-{index}",
            f"node A {{}}\nedge E: A -> A {{ p: String §@key({members}) }}",
            "PG511",
            f"@key of edge E lacks {lacking}: an edge is named by both its ends",
        )
        for index, (members, lacking) in enumerate([("p", "src and dst"), ("src", "dst"), ("dst, p", "src")])
    ),
    Rejected(
        "multiple-keys-on-edge",
        "node A {}\nedge E: A -> A { p: String @key(src, dst) §@key(src, dst, p) }",
        "PG502",
        "edge type E has multiple @key constraints; only one is supported",
    ),
    *(
        Rejected(
            f"multiple-keys-{index}",
            text,
            "PG502",
            "node type N has multiple @key constraints; only one is supported",
        )
        for index, text in enumerate(
            [
                "node N { a: String @key b: String §@key }",
                "node N { a: String @key §@key(a) }",
                "node N { a: String b: String @key(a) §@key(b) }",
                "interface I { a: String §@key }\nnode N implements I { b: String @key }",
            ]
        )
    ),
    *(
        Rejected(
            f"unknown-in-{name}",
            f"node N {{ a: String @{name}(§p{rest}) }}",
            "PG503",
            f"@{name} on N references unknown property 'p'",
        )
        for name, rest in (
            ("key", ""),
            ("unique", ", a"),
            ("index", ""),
            ("range", ", 1..2"),
            ("check", ', "x"'),
        )
    ),
    Rejected(
        "src-on-node", "node N { a: String @unique(§src) }", "PG503", "references unknown property 'src'"
    ),
    Rejected(
        "key-nullable-inline", "node N { p: String? §@key }", "PG504", "@key property N.p cannot be nullable"
    ),
    Rejected(
        "key-nullable-body", "node N { p: String? @key(§p) }", "PG504", "@key property N.p cannot be nullable"
    ),
    *(
        Rejected(
            f"key-body-{sort}",
            f"node N {{ p: {kind} @key(§p) }}",
            "PG505",
            f"@key is not supported on {sort} property N.p",
        )
        for sort, kind in (("list", "[I32]"), ("vector", "Vector(2)"), ("blob", "Blob"))
    ),
    *(
        Rejected(
            f"unique-body-{sort}",
            f"node N {{ p: {kind} @unique(§p) }}",
            "PG506",
            f"@unique is not supported on {sort} property N.p",
        )
        for sort, kind in (("list", "[I32]"), ("vector", "Vector(2)"), ("blob", "Blob"))
    ),
    Rejected(
        "unique-edge-list",
        "node A {}\nedge E: A -> A { p: [I32] @unique(§p) }",
        "PG506",
        "@unique is not supported on list",
    ),
    Rejected(
        "index-body-blob",
        "node N { p: Blob @index(§p) }",
        "PG506",
        "@index is not supported on blob property N.p",
    ),
    *(
        Rejected(
            f"range-{index}",
            f"node N {{ p: {kind} @range(§p, 1..2) }}",
            "PG507",
            f"@range on N.p requires a numeric type, got {kind}",
        )
        for index, kind in enumerate(("String", "[I32]", "Date", "enum(a)", "Bool?"))
    ),
    *(
        Rejected(
            f"check-{index}",
            f'node N {{ p: {kind} @check(§p, "a") }}',
            "PG508",
            f"@check on N.p requires String type, got {kind}",
        )
        for index, kind in enumerate(("I32", "[String]", "Blob?"))
    ),
    Rejected("range-order", "node N { p: I32 §@range(p, 5..1) }", "PG509", "min (5) exceeds max (1)"),
    Rejected("range-order-negative", "node N { p: I32 §@range(p, -1.5..-2) }", "PG509", "exceeds max"),
    Rejected("range-infinite", f"node N {{ p: F64 §@range(p, {'9' * 400}..) }}", "PG509", "too large"),
    Rejected("pattern-lookahead", 'node N { p: String @check(p, §"(?=a)") }', "PG510", "invalid pattern"),
    Rejected(
        "pattern-backreference", 'node N { p: String @check(p, §"(a)\\\\1") }', "PG510", "invalid pattern"
    ),
    Rejected("pattern-open", 'node N { p: String @check(p, §"(a") }', "PG510", "invalid pattern"),
]

CATALOG = [
    Rejected("duplicate-node", "node N {}\nnode §N {}", "PG601", "duplicate node"),
    Rejected("duplicate-edge", "node N {}\nedge E: N -> N\nedge §E: N -> N", "PG601", "duplicate edge"),
    Rejected("duplicate-interface", "interface I {}\ninterface §I {}", "PG601", "duplicate interface"),
    Rejected("duplicate-property", "node N { a: String §a: I32 }", "PG602", "duplicate property"),
    Rejected("duplicate-in-interface", "interface I { a: String §a: String }", "PG602", "duplicate property"),
    Rejected(
        "unknown-source", "node N {}\nedge E: §A -> N", "PG603", "edge E references unknown source type: A"
    ),
    Rejected(
        "unknown-target", "node N {}\nedge E: N -> §B", "PG603", "edge E references unknown target type: B"
    ),
    Rejected(
        "interface-endpoint",
        "interface I {}\nnode N {}\nedge E: N -> §I",
        "PG603",
        "edge E references unknown target type: I",
    ),
    Rejected(
        "case-folding",
        "node N {}\nedge Knows: N -> N\nedge §KNOWS: N -> N",
        "PG604",
        "edge name collision after case folding: 'KNOWS' conflicts with 'Knows'",
    ),
    *(
        Rejected(
            f"incompatible-{index}",
            f"interface I {{ p: {kind} {ours} }}\ninterface J {{ p: {kind} {theirs} }}\n"
            "node N implements I, §J { s: String }",
            "PG605",
            "interfaces contributing 'N.p' have incompatible property semantics",
        )
        for index, (kind, ours, theirs) in enumerate(
            [
                ("String", "@key", ""),
                ("String", "@index", "@unique"),
                ("String", '@description("a")', '@description("b")'),
                ("Vector(2)", "@embed(s)", '@embed(s, model="m")'),
            ]
        )
    ),
]

REJECTED = [*GRAMMAR, *VALUES, *INTERFACES, *ANNOTATIONS, *CONSTRAINTS, *CATALOG]
