"""Texts: random reads over the schema of worlds.py, always valid.

Room    tests.query. Grows a query clause by clause and remembers which variable has which type, so that every
        text passes the checker; one that does not is a fault of this file or of the checker.
Given   a source of randomness.
Gives   `Text`: a `.gq` text with values for its parameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.query.worlds import ENDS, POOLS, PROPERTIES

NODES = ("A", "B", "C")
NUMBERS = ("I32", "I64", "U32", "F64", "F32")
NAMES = ("m", "b", "x", "a", "zz", "aB", "k1", "_q", "p", "c")
COMPARISONS = ("=", "!=", "!=", "<", "<=", ">", ">=", ">=")


@dataclass(frozen=True)
class Text:
    """A read and its parameters."""

    gq: str
    params: dict[str, Any]


@dataclass
class Scope:
    """The variables that a clause can see: names with the names of their types."""

    nodes: dict[str, str] = field(default_factory=dict)
    edges: dict[str, str] = field(default_factory=dict)

    def inner(self) -> Scope:
        """Return the scope of a block."""
        return Scope(dict(self.nodes), dict(self.edges))


def random_text(rnd: Random) -> Text:
    """Return a random read."""
    return _Writer(rnd).read()


class _Writer:
    def __init__(self, rnd: Random) -> None:
        self._rnd = rnd
        self._params: dict[str, tuple[str, Any]] = {}
        self._names = list(NAMES)
        rnd.shuffle(self._names)

    def read(self) -> Text:
        scope = Scope()
        clauses = self._shape(scope) if self._maybe(0.25) else [self._introduce(scope)]
        for _ in range(self._rnd.randint(0, 3 if len(clauses) == 1 else 1)):
            clauses.append(self._clause(scope, 0))
        outputs, tail = self._outputs(scope)
        declared = ", ".join(f"${name}: {kind}" for name, (kind, _) in self._params.items())
        match = "\n    ".join(clauses)
        gq = f"query q({declared}) {{\n  match {{\n    {match}\n  }}\n  {outputs}\n  {tail}\n}}"
        return Text(gq, {name: value for name, (_, value) in self._params.items()})

    # -- small choices -----------------------------------------------------------------------------

    def _maybe(self, share: float) -> bool:
        return self._rnd.random() < share

    def _new_name(self, scope: Scope, taken: str = "") -> str | None:
        used = {*scope.nodes, *scope.edges, taken}
        free = [name for name in self._names if name not in used]
        return free[0] if free else None

    def _param(self, kind: str, value: Any) -> str:
        name = f"p{len(self._params)}"
        self._params[name] = (kind, value)
        return f"${name}"

    # -- shapes that have operators of their own ----------------------------------------------------

    def _shape(self, scope: Scope) -> list[str]:
        """Return the clauses of a join by value, of a chain or star of hops, or of a cycle."""
        match self._rnd.choice(("join", "chain", "star", "cycle")):
            case "join":
                return self._value_join(scope)
            case "cycle":
                a, b, c = self._new_nodes(scope, self._rnd.choice(("A", "B")), 3)
                ends = [(a, b), (b, c), self._rnd.choice([(a, c), (c, a)])]
                ends += [(b, a)] if self._maybe(0.2) else []
                edge = "aa" if scope.nodes[a] == "A" else "bb"
                return [f"${x} {self._either(edge)} ${y}" for x, y in ends]
            case shape:
                nodes = self._new_nodes(scope, "A", self._rnd.randint(3, 5))
                before = nodes if shape == "chain" else nodes[:1] * len(nodes)
                clauses = [f"${x} {self._either('aa')} ${y}" for x, y in zip(before, nodes[1:], strict=False)]
                if self._maybe(0.3):
                    (b,) = self._new_nodes(scope, "B", 1)
                    clauses.append(f"${nodes[-1]} ab ${b}")
                return clauses

    def _value_join(self, scope: Scope) -> list[str]:
        clauses = [self._binding(scope), self._binding(scope)]
        if self._maybe(0.3):
            clauses.append(self._binding(scope))
        by_type: dict[str, list[str]] = {}
        for text, scalar in self._properties(scope):
            if not scalar.startswith("["):
                family = "number" if scalar in NUMBERS and scalar != "F32" else scalar
                by_type.setdefault(family, []).append(text)
        several = [texts for texts in by_type.values() if len({text.split(".")[0] for text in texts}) > 1]
        for texts in self._rnd.sample(several, min(len(several), self._rnd.randint(1, 2))):
            left = self._rnd.choice(texts)
            right = self._rnd.choice([text for text in texts if text.split(".")[0] != left.split(".")[0]])
            clauses.append(f"{left} = {right}")
        return clauses

    def _new_nodes(self, scope: Scope, kind: str, count: int) -> list[str]:
        names = []
        for _ in range(count):
            name = self._new_name(scope)
            assert name is not None
            scope.nodes[name] = kind
            names.append(name)
        return names

    def _either(self, edge: str) -> str:
        return f"<{edge}>" if self._maybe(0.25) else edge

    # -- clauses -----------------------------------------------------------------------------------

    def _introduce(self, scope: Scope) -> str:
        """Return a first clause: a binding, or a traversal with two new ends."""
        return self._binding(scope) if self._maybe(0.7) else self._traversal(scope)

    def _clause(self, scope: Scope, depth: int) -> str:
        kinds = ["traversal"] * 5 + ["filter"] * 2 + ["binding", "again"]
        kinds += ["not", "exists", "count", "optional"] if depth < 2 else []
        match self._rnd.choice(kinds):
            case "traversal":
                return self._traversal(scope)
            case "filter" if scope.nodes:
                return self._condition(scope, 0)
            case "again" if scope.nodes:
                return self._again(scope)
            case ("not" | "exists" | "count" | "optional") as kind if scope.nodes:
                return self._block(scope, depth, kind)
            case _:
                return self._binding(scope)

    def _binding(self, scope: Scope) -> str:
        name, kind = self._new_name(scope), self._rnd.choice(NODES)
        if name is None or self._maybe(0.1):
            return f"$_: {kind}{self._entries(kind)}"
        scope.nodes[name] = kind
        return f"${name}: {kind}{self._entries(kind)}"

    def _again(self, scope: Scope) -> str:
        name = self._rnd.choice(sorted(scope.nodes))
        kind = scope.nodes[name]
        return f"${name}: {kind} {{ {self._entry(kind)} }}"

    def _entries(self, kind: str) -> str:
        return f" {{ {self._entry(kind)} }}" if self._maybe(0.15) else ""

    def _entry(self, kind: str) -> str:
        name, scalar = self._rnd.choice(sorted(PROPERTIES[kind].items()))
        item = scalar.strip("[]")
        value = self._rnd.choice(POOLS[item])
        if self._maybe(0.3):
            given = None if self._maybe(0.1) else value
            return f"{name}: {self._param(_declared(item) + '?', given)}"
        return f"{name}: {literal(value, item)}"

    def _traversal(self, scope: Scope) -> str:
        edge = self._rnd.choice(sorted(ENDS))
        source, target = ENDS[edge]
        ends = [source, target]
        same = source == target
        left = self._end(scope, source if same or self._maybe(0.7) else target)
        if left in scope.nodes:
            ends = ends if scope.nodes[left] == source else ends[::-1]
            right = left if same and self._maybe(0.1) else self._end(scope, ends[1])
        else:
            right = self._end(scope, target if same or self._maybe(0.7) else source, left)
            if right in scope.nodes and scope.nodes[right] != target:
                ends = ends[::-1]
            elif right not in scope.nodes and same and left != "_" and self._maybe(0.1):
                right = left
        word = edge[0].lower() + edge[1:]
        word = f"<{word}>" if same and self._maybe(0.3) else word
        for name, kind in zip((left, right), ends, strict=True):
            if name != "_":
                scope.nodes[name] = kind
        return f"${left} {self._edge(scope, edge, word)} ${right}"

    def _end(self, scope: Scope, kind: str, taken: str = "") -> str:
        """Return the name of an end: one that is bound, a new one, or none."""
        known = sorted(name for name, bound in scope.nodes.items() if bound == kind)
        if known and self._maybe(0.6):
            return self._rnd.choice(known)
        return (None if self._maybe(0.2) else self._new_name(scope, taken)) or "_"

    def _edge(self, scope: Scope, edge: str, word: str) -> str:
        if self._maybe(0.25):
            name = self._new_name(scope)
            if name is not None:
                scope.edges[name] = edge
                return f"${name}:{word}"
        if self._maybe(0.35):
            low = self._rnd.randint(1, 3)
            return f"{word}{{{low},{low + self._rnd.randint(0, 2)}}}"
        return word

    def _block(self, scope: Scope, depth: int, kind: str) -> str:
        inner = scope.inner()
        outer = sorted(scope.nodes)
        clauses = [self._mention(inner, self._rnd.choice(outer))]
        for _ in range(self._rnd.randint(0, 2)):
            clauses.append(self._clause(inner, depth + 1))
        if kind == "optional":
            scope.nodes, scope.edges = inner.nodes, inner.edges
        body = f"{kind} {{ {'  '.join(clauses)} }}"
        if kind == "count":
            return f"{body} {self._rnd.choice(COMPARISONS)} {self._rnd.randint(0, 2)}"
        return body

    def _mention(self, scope: Scope, name: str) -> str:
        """Return a clause that mentions an outer variable."""
        if self._maybe(0.2):
            return self._comparison(scope, name)
        kind = scope.nodes[name]
        edge = self._rnd.choice([edge for edge, ends in ENDS.items() if kind in ends])
        source, target = ENDS[edge]
        other = target if kind == source else source
        far = self._end(scope, other)
        word = edge[0].lower() + edge[1:]
        if source == target:
            word = f"<{word}>" if self._maybe(0.3) else word
            near, end = (name, far) if self._maybe(0.6) else (far, name)
        else:
            near, end = name, far
        if far != "_":
            scope.nodes[far] = other
        return f"${near} {self._edge(scope, edge, word)} ${end}"

    # -- conditions --------------------------------------------------------------------------------

    def _condition(self, scope: Scope, depth: int) -> str:
        if depth < 2 and self._maybe(0.35):
            left, right = self._condition(scope, depth + 1), self._condition(scope, depth + 1)
            return self._rnd.choice(
                [f"({left} and {right})", f"({left} or {right})", f"({left} or {right})", f"not({left})"]
            )
        return self._comparison(scope, self._rnd.choice(sorted(scope.nodes)))

    def _properties(self, scope: Scope, *families: str) -> Iterator[tuple[str, str]]:
        """Yield every readable property as text, with its type."""
        for name, kind in sorted((*scope.nodes.items(), *scope.edges.items())):
            for member, scalar in PROPERTIES[kind].items():
                if not families or scalar in families:
                    yield f"${name}.{member}", scalar

    def _comparison(self, scope: Scope, name: str) -> str:
        member, scalar = self._rnd.choice(sorted(PROPERTIES[scope.nodes[name]].items()))
        left = f"${name}.{member}"
        if scalar.startswith("["):
            return f"{left} contains {literal(self._rnd.choice(POOLS[scalar[1:-1]]), scalar[1:-1])}"
        value = literal(self._rnd.choice(POOLS[scalar]), scalar)
        kinds = ["literal"] * 3 + ["param", "other", "null", "in", "id", "turned", "list"]
        kinds += ["text"] * 2 if scalar in ("String", "enum") else []
        kinds += ["arithmetic"] if scalar in ("I32", "I64") else []
        operator = self._rnd.choice(COMPARISONS)
        match self._rnd.choice(kinds):
            case "param":
                given = None if self._maybe(0.1) else self._rnd.choice(POOLS[scalar])
                return f"{left} {operator} {self._param(_declared(scalar) + '?', given)}"
            case "other":
                family = NUMBERS if scalar in NUMBERS and scalar != "F32" else (scalar,)
                others = [text for text, kind in self._properties(scope, *family) if kind != "F32"]
                return f"{left} {operator} {self._rnd.choice(others or [left])}"
            case "turned" if not value.startswith("-"):  # which would go on with the clause before
                return f"{value} {operator} {left}"
            case "list":
                items = sorted({literal(self._rnd.choice(POOLS[scalar]), scalar) for _ in range(2)})
                return f"[{', '.join(items)}] contains {left}"
            case "null":
                return f"{left} is {'not ' if self._maybe(0.5) else ''}null"
            case "in":
                items = [self._rnd.choice(POOLS[scalar]) for _ in range(self._rnd.randint(0, 3))]
                if self._maybe(0.4):
                    return f"{left} in {self._param(f'[{_declared(scalar)}]', items)}"
                return f"{left} in [{', '.join(literal(item, scalar) for item in items)}]"
            case "id":
                other = self._rnd.choice(sorted(scope.nodes))
                return f"${name}.@id {operator} ${other}.@id"
            case "text":
                word = self._rnd.choice(("contains", "starts_with"))
                return f"{left} {word} {literal(self._rnd.choice(POOLS['String']), 'String')}"
            case "arithmetic":
                return f"{left} {self._rnd.choice('+-*')} 2 {operator} {self._rnd.choice(['1', '-3', left])}"
            case _:
                if scalar in NUMBERS and self._maybe(0.3):
                    value = self._rnd.choice(["0.5", "-1", "2.5", "99999999999"])
                return f"{left} {operator} {value}"

    # -- outputs -----------------------------------------------------------------------------------

    def _outputs(self, scope: Scope) -> tuple[str, str]:
        readable = list(self._properties(scope))
        if scope.nodes and self._maybe(0.25):  # a count alone has shortcuts of its own
            return f"return {{ count(${self._rnd.choice(sorted(scope.nodes))}) as n }}", self._tail(["n"])
        if self._maybe(0.35):
            outputs, keys = self._grouped(scope, readable)
            return f"return {{ {', '.join(outputs)} }}", self._tail(keys)
        outputs, keys = self._plain(scope, readable)
        if self._maybe(0.2):
            return f"return distinct {{ {', '.join(outputs)} }}", self._tail(keys)
        keys += [text for text, scalar in readable if not scalar.startswith("[")]
        return f"return {{ {', '.join(outputs)} }}", self._tail(keys)

    def _plain(self, scope: Scope, readable: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
        """Return outputs, and the aliases among them that can be sorted on."""
        outputs: list[str] = []
        keys: list[str] = []
        for number in range(self._rnd.randint(1, 4)):
            alias = f"o{number}"
            kind = self._rnd.choice(
                ["property"] * 5 + ["node", "id", "literal", "arithmetic", "alias", "path"]
            )
            text, scalar = self._rnd.choice(readable or [("1", "I32")])
            sortable = not scalar.startswith("[")
            names = sorted(scope.nodes)
            if kind == "node" and names:
                text, sortable = f"${self._rnd.choice(names)}", False
            elif kind == "id" and names:
                text, sortable = f"${self._rnd.choice(names)}.@id", True
            elif kind == "literal":
                text, sortable = self._rnd.choice(['"x"', "1.5", "true", 'date("2024-01-01")']), True
            elif kind == "arithmetic" and scalar in ("I32", "I64"):
                text = f"{text} * 3 - 1"
            elif kind == "alias" and keys:
                text, sortable = keys[-1], True
            elif kind == "path" and (path := self._path(scope)):
                text, sortable = path, False
            outputs.append(f"{text} as {alias}")
            keys += [alias] if sortable else []
        return outputs, keys

    def _path(self, scope: Scope) -> str | None:
        for edge, kind in (("aa", "A"), ("bb", "B")):
            names = sorted(name for name, bound in scope.nodes.items() if bound == kind)
            if names:
                word = f"<{edge}>" if self._maybe(0.3) else edge
                left, right = self._rnd.choice(names), self._rnd.choice(names)
                return f"shortest(${left} {word}{{1,{self._rnd.randint(1, 3)}}} ${right})"
        return None

    def _grouped(self, scope: Scope, readable: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
        outputs: list[str] = []
        keys: list[str] = []
        plain = [(text, scalar) for text, scalar in readable if not scalar.startswith("[")]
        for _ in range(self._rnd.randint(0, 2)):
            alias = f"o{len(outputs)}"
            if scope.nodes and self._maybe(0.2):
                outputs.append(f"${self._rnd.choice(sorted(scope.nodes))} as {alias}")
            elif plain:
                outputs.append(f"{self._rnd.choice(plain)[0]} as {alias}")
                keys.append(alias)
        for _ in range(self._rnd.randint(1, 3)):
            alias = f"o{len(outputs)}"
            text, sortable = self._aggregate(scope, plain)
            outputs.append(f"{text} as {alias}")
            keys += [alias] if sortable else []
        self._rnd.shuffle(outputs)
        if keys and self._maybe(0.2):
            outputs.append(f"{self._rnd.choice(keys)} as again")
        return outputs, keys

    def _aggregate(self, scope: Scope, plain: list[tuple[str, str]]) -> tuple[str, bool]:
        if not plain or (scope.nodes and self._maybe(0.3)):
            function = self._rnd.choice(("count", "count_distinct"))
            argument = f"${self._rnd.choice(sorted(scope.nodes))}" if scope.nodes else "1"
            text = f"{function}({argument})"
            return f"{text} * 2 - 1" if self._maybe(0.2) else text, True
        text, scalar = self._rnd.choice(plain)
        functions = ["count", "count_distinct", "min", "max", "collect"]
        functions += ["sum", "avg", "sum"] if scalar in NUMBERS else []
        function = self._rnd.choice(functions)
        # Sums of floats depend on their order in the last digit, which a sort would show.
        return f"{function}({text})", function not in ("collect", "sum", "avg")

    def _tail(self, keys: list[str]) -> str:
        parts = []
        if keys and self._maybe(0.5):
            chosen = [self._rnd.choice(keys) for _ in range(self._rnd.randint(1, 2))]
            directions = [self._rnd.choice(("", " asc", " desc")) for _ in chosen]
            parts.append(f"order {{ {', '.join(map(''.join, zip(chosen, directions, strict=True)))} }}")
        if self._maybe(0.25):
            number = self._rnd.choice((0, 1, 2, 3, 5))
            parts.append(f"limit {self._param('I32', number) if self._maybe(0.3) else number}")
        if self._maybe(0.15):
            parts.append(f"offset {self._rnd.randint(0, 3)}")
        return " ".join(parts)


def _declared(scalar: str) -> str:
    return "String" if scalar == "enum" else scalar


def literal(value: Any, scalar: str) -> str:
    """Return a value as query text."""
    if scalar == "Date":
        return f'date("{value}")'
    return json.dumps(value, ensure_ascii=False)
