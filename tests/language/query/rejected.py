"""Texts that are wrong in themselves: code, column of the fault, part of the message.

A `¦` marks the place; it is taken out before the text is parsed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rejected:
    """One wrong text."""

    code: str
    text: str
    message: str
    hint: str | None = None

    @property
    def source(self) -> str:
        """The text without the mark."""
        return self.text.replace("¦", "")

    @property
    def column(self) -> int:
        """Where the fault is."""
        return self.text.index("¦") + 1


def read(match: str, output: str = "$p.name", tail: str = "") -> str:
    """A read on one line."""
    return f"query q($s: String) {{ match {{ {match} }} return {{ {output} }} {tail}}}"


REJECTED = [
    # -- the grammar
    Rejected("Q000", "¦mutation m() { }", "unexpected 'mutation'", "query name() { insert"),
    Rejected("Q000", "¦{ }", "unexpected '{', expected 'query'"),
    Rejected("Q000", read("$p: P", "$p.tags¦[0] as x"), "unexpected '['", "cannot be picked"),
    Rejected("Q000", read("$p: P", "$p.tags ¦[0]"), "unexpected '['", "write a comma"),
    Rejected("Q000", read("$p: P", "$p.n as n ¦[0]"), "unexpected '['"),
    Rejected("Q000", read("$p: P", "collect($p.n)¦[0] as x"), "unexpected '['", "cannot be picked"),
    Rejected(
        "Q000", "query ¦Q() { match { $p: P } return { 1 } }", "a query name starts with a lower-case", "'q'"
    ),
    Rejected("Q000", "query q() { ¦}", "expected 'match', 'insert', 'update' or 'delete'"),
    Rejected(
        "Q000", "query q() { ¦mach { $p: P } return { 1 } }", "unexpected 'mach'", "did you mean 'match'?"
    ),
    Rejected("Q000", "query q() { match { ¦} return { 1 } }", "unexpected '}'"),
    Rejected("Q000", "query q() { match { $p: P } return { ¦} }", "unexpected '}'"),
    Rejected("Q000", "query q() { match { not { ¦} } return { 1 } }", "unexpected '}'"),
    Rejected("Q000", "query q() { insert T { ¦} }", "unexpected '}', expected a name"),
    Rejected("Q000", "query q() { update T set { ¦} where a = 1 }", "unexpected '}', expected a name"),
    Rejected("Q000", "query q() { update T set { a: 1 } ¦}", "expected 'where'"),
    Rejected("Q000", "query q() { delete T ¦}", "expected 'where'"),
    Rejected("Q000", "query q() { match { $p: P } return { 1 }¦", "expected", "a '}' is missing"),
    Rejected(
        "Q000", "query q() { match { $p: P ¦# x\n } return { 1 } }", "unexpected '#'", "starts with '//'"
    ),
    Rejected("Q000", "query q() { match { $p.a = ¦'x' } return { 1 } }", "unexpected", "double quotes"),
    Rejected(
        "Q000",
        "query q() { match { $p: ¦person } return { 1 } }",
        "a type name starts with an upper",
        "Person",
    ),
    Rejected(
        "Q000", "query q() { match { ¦$P: P } return { 1 } }", "a variable starts with a lower-case", "'$p'"
    ),
    Rejected(
        "Q000",
        "query q() { match { $p: P { ¦Name: 1 } } return { 1 } }",
        "a property name starts with",
        "'name'",
    ),
    Rejected(
        "Q000",
        "query q() { match { $a ¦Knows $b } return { 1 } }",
        "an edge in a traversal starts",
        "'knows'",
    ),
    Rejected("Q000", "query q() { match { $a ¦not $b } return { 1 } }", "cannot be called 'not'"),
    Rejected(
        "Q000",
        "query q() { match { ¦name = 1 } return { 1 } }",
        "unexpected 'name'",
        "a variable is written with '$'",
    ),
    Rejected("Q000", read("$p.a = 1 ¦= 2"), "unexpected '='", "do not chain"),
    Rejected("Q000", read("$p.a = 1 ¦contains 2"), "unexpected 'contains'", "do not chain"),
    Rejected("Q000", read("¦$p.a  $p.b = 1"), "expected a comparison, found a value alone", "$x.p = true"),
    Rejected("Q000", read("$p.a = ¦($p.b = 1)"), "expected a value, found a condition"),
    Rejected("Q000", read("$p: P", "¦$p.a = 1"), "expected a value, found a condition"),
    Rejected("Q000", read("$p: P", "$p.a as ¦N"), "an alias starts with a lower-case letter"),
    Rejected("Q000", read("$p: P", "$p.a as ¦}"), "expected a name"),
    Rejected("Q000", read("$p: P", "count(¦*)"), "unexpected '*'", "count($x)"),
    Rejected("Q000", read("$p: P", "¦total($p.a)"), "there is no function 'total'"),
    Rejected(
        "Q000",
        read("$p: P", "¦searchh($p.a, $s)"),
        "there is no function 'searchh'",
        "did you mean 'search'?",
    ),
    Rejected("Q000", read("$p: P", "¦search($p.a)"), "search takes 2 arguments, found 1"),
    Rejected("Q000", read("$p: P", "¦fuzzy($p.a, $s, 1, 2)"), "fuzzy takes 2 or 3 arguments, found 4"),
    Rejected("Q000", read("$p: P", "¦sum($p.a, $p.b)"), "sum takes 1 argument, found 2"),
    Rejected("Q000", read("$p: P", "¦now(1)"), "now takes 0 arguments, found 1"),
    Rejected("Q000", read("$p: P", "¦date(1)"), "date takes one text in double quotes"),
    Rejected("Q000", read("$p: P", "¦9223372036854775808"), "does not fit 64 bits", "U64"),
    Rejected("Q000", read("$p: P", '"a¦\\x"'), "unsupported escape sequence: \\x"),
    Rejected("Q000", "query q¦# () {}", "unexpected '#', expected '('"),
    Rejected("Q000", read("$p: P", '¦"a'), "the string is never closed"),
    Rejected("Q000", "query q() { ¦/* ", "the comment is never closed"),
    Rejected(
        "Q000",
        read("$p: P", "1", "order { nearest($p.v, $s) ¦desc } limit 1 "),
        "takes no direction",
        "remove",
    ),
    Rejected("Q000", read("$p: P", "1", "order { $p.a, ¦} "), "unexpected '}'"),
    Rejected("Q000", read("$p: P", "1", "limit ¦1.5 "), "expected a whole number"),
    Rejected("Q000", read("$p: P", "1", "limit ¦- 1 "), "unexpected '-', expected a variable or a number"),
    Rejected("Q000", read("$p: P { a: ¦null }"), "null is only legal as an assigned value", "'is null'"),
    Rejected("Q000", read("$p.a = ¦null"), "null is only legal as an assigned value", "'is null'"),
    Rejected("Q000", "query q() { delete T where a = ¦null }", "null is only legal as an assigned value"),
    Rejected("Q000", "query q() { delete T where a ¦contains 1 }", "'where' has no 'contains'"),
    Rejected("Q000", "query q() { delete T where a = 1 ¦+ 2 }", "unexpected '+'"),
    Rejected("Q000", "query q() { insert T { a: ¦count(1) } }", "only a literal, a parameter or now()"),
    Rejected("Q000", "query q() { insert T { a: ¦$p.a } }".replace("¦$p.a", "$p¦.a"), "unexpected '.'"),
    Rejected("Q000", read("$a knows{¦} $b"), "expected a number"),
    Rejected("Q000", read("$a knows{1.5¦} $b"), "unexpected '}', expected ','"),
    Rejected("Q000", read("$a knows{¦1.5,2} $b"), "expected a whole number"),
    Rejected("Q000", read("count { $p knows $q } > ¦$s"), "unexpected '$s', expected a number"),
    Rejected("Q000", read("$p.a in [1, ¦now()]"), "a list holds literals only"),
    Rejected("Q000", "query q(¦$_: String) { insert T { a: 1 } }", "a parameter needs a name"),
    Rejected("Q000", "query q() ¦@description { insert T { a: 1 } }", "@description needs a text"),
    # -- codes of their own
    Rejected(
        "Q101", "query q() { insert T { a: 1 } } query ¦q() { insert T { a: 1 } }", "duplicate query 'q'"
    ),
    Rejected(
        "Q102", "query q($a: ¦Strng) { insert T { a: 1 } }", "unknown parameter type 'Strng'", "'String'"
    ),
    Rejected("Q102", "query q($a: [¦Blob]) { insert T { a: 1 } }", "unknown parameter type '[Blob]'"),
    Rejected(
        "Q102", "query q($a: ¦Vector) { insert T { a: 1 } }", "unknown parameter type 'Vector'", "Vector(n)"
    ),
    Rejected("Q102", "query q($a: Vector(¦0)) { insert T { a: 1 } }", "unknown parameter type 'Vector(0)'"),
    Rejected("Q102", "query q($a: ¦I32(3)) { insert T { a: 1 } }", "unknown parameter type 'I32(3)'"),
    Rejected("Q103", "query q($a: I32, ¦$a: I32) { insert T { a: 1 } }", "parameter 'a' is declared twice"),
    Rejected(
        "Q104",
        "query q(¦$__nanograph_now: DateTime) { insert T { a: 1 } }",
        "is reserved for runtime timestamp",
    ),
    Rejected(
        "Q105",
        'query q() ¦@descriptions("x") { insert T { a: 1 } }',
        "no annotation '@descriptions'",
        "'description'",
    ),
    Rejected(
        "Q106",
        'query q() @description("x") @instruction("y") ¦@description("z") { insert T { a: 1 } }',
        "cannot include duplicate @description annotations",
    ),
    Rejected("Q107", read("$p.a in [1, ¦[2]]"), "nested list literals"),
    Rejected(
        "Q108", read('$p.a in [1, 2.5, ¦"x"]'), "list literal elements must share a compatible scalar type"
    ),
    Rejected("Q109", read('$p.a = date(¦"2026-02-30")'), "invalid Date literal '2026-02-30'"),
    Rejected("Q109", read('$p.a = datetime(¦"noon")'), "invalid DateTime literal 'noon'"),
]
