"""Hypothesis strategies for queries: texts that the grammar takes, in any layout and with any names.

They are right in form only: what the names refer to is nobody's concern here.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tests.language.strategies import quoted, spaces, texts

Words = list[str]

TYPES = ["Person", "Book", "A", "B_1"]
NAMES = [
    "name",
    "match",
    "order",
    "date",
    "count",
    "query",
    "in",
    "not",
    "contains",
    "_x",
    "createdAt",
    "limit",
]
FIELDS = [*NAMES, "null", "true", "now", "and", "is"]  # a name is the only thing that can stand there
EDGES = ["knows", "worksAt", "contains", "starts_with", "in", "is", "and", "or", "query", "order", "count"]
VARIABLES = ["$p", "$q", "$x1", "$createdAt", "$in"]
PARAMS = ["$a", "$b", "$match"]
COMPARE = ["=", "!=", "<", "<=", ">", ">="]
SCALARS = ["String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime"]
AGGREGATES = ["count", "sum", "avg", "min", "max", "count_distinct", "collect"]

names = st.sampled_from(NAMES)
fields = st.sampled_from(FIELDS)
variables = st.sampled_from(VARIABLES)
params = st.sampled_from(PARAMS)
anything = st.sampled_from(VARIABLES + PARAMS)
ends = st.sampled_from([*VARIABLES, "$_"])
comparisons = st.sampled_from(COMPARE)

numbers = st.sampled_from([["0"], ["7"], ["-", "3"], ["2.5"], ["-1.5"], ["9223372036854775807"]])
scalars: SearchStrategy[Words] = st.one_of(
    numbers,
    texts.map(lambda t: [quoted(t)]),
    st.sampled_from([["true"], ["false"], ["date", "(", '"2026-01-31"', ")"]]),
    st.just(["datetime", "(", '"2026-01-31T09:00:00Z"', ")"]),
)


def joined(parts: list[Words], comma: str = ",") -> Words:
    """Put a word between parts."""
    return [word for position, part in enumerate(parts) for word in ([comma] if position else []) + part]


@st.composite
def lists(draw: DrawFn) -> Words:
    kind = draw(st.sampled_from([numbers, texts.map(lambda t: [quoted(t)])]))
    return ["[", *joined(draw(st.lists(kind, max_size=3))), "]"]


literals = st.one_of(scalars, lists())
values: SearchStrategy[Words] = st.one_of(literals, params.map(lambda v: [v]), st.just(["now", "(", ")"]))


@st.composite
def accesses(draw: DrawFn) -> Words:
    return [draw(variables), ".", *draw(st.sampled_from([[], ["@"]])), draw(fields)]


@st.composite
def calls(draw: DrawFn, inner: SearchStrategy[Words]) -> Words:
    name = draw(st.sampled_from(["search", "fuzzy", "match_text", "bm25", "nearest", "rrf"]))
    size = 3 if name in ("fuzzy", "rrf") and draw(st.booleans()) else 2
    return [name, "(", *joined([draw(inner) for _ in range(size)]), ")"]


@st.composite
def arithmetic(draw: DrawFn, inner: SearchStrategy[Words]) -> Words:
    sides = [draw(inner) for _ in range(draw(st.integers(2, 3)))]
    words = joined(sides, draw(st.sampled_from("+-*/")))
    return ["(", *words, ")"] if draw(st.booleans()) else words


operands: SearchStrategy[Words] = st.recursive(
    st.one_of(accesses(), anything.map(lambda v: [v]), literals),
    lambda inner: st.one_of(arithmetic(inner), calls(inner)),
    max_leaves=4,
)


@st.composite
def aggregated(draw: DrawFn) -> Words:
    return [draw(st.sampled_from(AGGREGATES)), "(", *draw(operands), ")"]


@st.composite
def traversals(draw: DrawFn, *, bounded: bool = True) -> Words:
    binding = draw(st.sampled_from([[], ["$e", ":"], ["$_", ":"]]))
    edge = draw(st.sampled_from(EDGES))
    words = [draw(ends), *binding, f"<{edge}>" if draw(st.booleans()) else edge]
    if bounded and draw(st.booleans()):
        words += ["{", draw(st.sampled_from(["0", "1", "2"])), ",", *draw(st.sampled_from([["3"], []])), "}"]
    return [*words, draw(ends)]


@st.composite
def judgements(draw: DrawFn, value: SearchStrategy[Words]) -> Words:
    match draw(st.integers(0, 2)):
        case 0:
            return [draw(comparisons), *draw(value)]
        case 1:
            return ["in", *draw(st.one_of(lists(), params.map(lambda v: [v])))]
        case _:
            return draw(st.sampled_from([["is", "null"], ["is", "not", "null"]]))


@st.composite
def compared(draw: DrawFn) -> Words:
    if draw(st.booleans()):
        return [*draw(operands), *draw(judgements(operands))]
    left = draw(st.one_of(accesses(), lists(), params.map(lambda v: [v])))
    return [*left, draw(st.sampled_from(["contains", "starts_with"])), *draw(operands)]


@st.composite
def combined(draw: DrawFn, inner: SearchStrategy[Words]) -> Words:
    word = draw(st.sampled_from(["and", "or", "not"]))
    if word == "not":
        return ["not", "(", *draw(inner), ")"]
    parts = [draw(inner) for _ in range(draw(st.integers(2, 3)))]
    words = joined([["(", *part, ")"] if draw(st.booleans()) else part for part in parts], word)
    return ["(", *words, ")"] if draw(st.booleans()) else words


conditions: SearchStrategy[Words] = st.recursive(
    st.one_of(compared(), st.just(["search", "(", "$p", ".", "name", ",", "$a", ")"])),
    combined,
    max_leaves=4,
)


@st.composite
def tests(draw: DrawFn) -> Words:
    return [draw(fields), *draw(judgements(values))]


wheres: SearchStrategy[Words] = st.recursive(tests(), combined, max_leaves=4)


@st.composite
def bindings(draw: DrawFn) -> Words:
    words = [draw(ends), ":", draw(st.sampled_from(TYPES))]
    if draw(st.booleans()):
        entries = joined([[draw(fields), ":", *draw(values)] for _ in range(draw(st.integers(0, 2)))])
        trailing = bool(entries) and draw(st.booleans())
        words += ["{", *entries, *([","] if trailing else []), "}"]
    return words


@st.composite
def blocks(draw: DrawFn, inner: SearchStrategy[Words]) -> Words:
    word = draw(st.sampled_from(["not", "exists", "optional", "count"]))
    clauses = sum_words([draw(inner) for _ in range(draw(st.integers(1, 2)))])
    tail = [draw(comparisons), *draw(st.sampled_from([["2"], ["-", "1"]]))] if word == "count" else []
    return [word, "{", *clauses, "}", *tail]


clauses: SearchStrategy[Words] = st.recursive(
    st.one_of(bindings(), traversals(), conditions), blocks, max_leaves=3
)


@st.composite
def outputs(draw: DrawFn) -> Words:
    path = st.builds(lambda t: ["shortest", "(", *t, ")"], traversals())
    value = draw(st.one_of(operands, aggregated(), names.map(lambda n: [n]), path))
    return [*value, "as", draw(fields)] if draw(st.booleans()) else value


@st.composite
def sorts(draw: DrawFn) -> Words:
    value = draw(st.one_of(accesses(), names.map(lambda n: [n]), aggregated()))
    return value + draw(st.sampled_from([[], ["asc"], ["desc"]]))


@st.composite
def reads(draw: DrawFn) -> Words:
    found = [draw(clauses) for _ in range(draw(st.integers(1, 3)))]
    words = ["match", "{", *sum_words(found), "}", "return"]
    words += ["distinct"] if draw(st.booleans()) else []
    words += ["{", *joined([draw(outputs()) for _ in range(draw(st.integers(1, 3)))]), "}"]
    if draw(st.booleans()):
        words += ["order", "{", *joined([draw(sorts()) for _ in range(draw(st.integers(1, 2)))]), "}"]
    paging = [["limit", "10"], ["limit", "$a"], ["offset", "2"], ["limit", "0", "offset", "$b"]]
    paging += [["offset", "1", "limit", "1"], []]
    return words + draw(st.sampled_from(paging))


@st.composite
def assigned(draw: DrawFn) -> Words:
    words: Words = ["{"]
    for _ in range(draw(st.integers(1, 3))):
        value = draw(st.one_of(values, st.just(["null"])))
        words += [draw(fields), ":", *value, *([","] if draw(st.booleans()) else [])]
    return [*words, "}"]


@st.composite
def statements(draw: DrawFn) -> Words:
    name = draw(st.sampled_from(TYPES))
    match draw(st.integers(0, 2)):
        case 0:
            return ["insert", name, *draw(assigned())]
        case 1:
            return ["update", name, "set", *draw(assigned()), "where", *draw(wheres)]
        case _:
            return ["delete", name, "where", *draw(wheres)]


@st.composite
def queries(draw: DrawFn) -> str:
    """Draw a text of one to three queries."""
    words: Words = []
    for number in range(draw(st.integers(1, 3))):
        types = st.sampled_from([*SCALARS, "Blob", "[String]", "[ I64 ]", "Vector ( 3 )"])
        declared = [
            [name, ":", draw(types), *draw(st.sampled_from([[], ["?"]]))]
            for name in draw(st.lists(params, max_size=3, unique=True))
        ]
        words += ["query", f"{draw(names)}{number}", "(", *joined(declared), ")"]
        if draw(st.booleans()):
            words += ["@", "description", "(", quoted(draw(texts)), ")"]
        body = draw(st.one_of(reads(), st.lists(statements(), min_size=1, max_size=3).map(sum_words)))
        words += ["{", *body, "}"]
    return "".join(word + draw(spaces) for word in words)


def sum_words(parts: list[Words]) -> Words:
    """Put parts one after the other."""
    return [word for part in parts for word in part]
