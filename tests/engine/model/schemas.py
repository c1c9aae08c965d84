"""Random small schemas with every kind of constraint, as plain values and as schema text.

Room    tests. Knows nothing of the package but the words of its schema language.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

SCALARS = {
    "string": "String",
    "code": "String",
    "enum": "enum(p, q)",
    "small": "I32",
    "float": "F64",
    "day": "Date",
    "moment": "DateTime",
    "bool": "Bool",
    "big": "U64",
}
GOOD: dict[str, list[Any]] = {
    "string": ["", "a", "b", "x|y", "ä"],
    "code": ["A", "AB"],
    "enum": ["p", "q"],
    "small": [0, 5, 9],
    "float": [0.0, -0.0, 1.5],
    "day": [0, 20_633],
    "moment": [0, 1, 86_400_000],
    "bool": [True, False],
    "big": [0, 2**63 + 1],
}
BAD: dict[str, tuple[str, Any]] = {"code": ("check", "ab"), "enum": ("enum", "zz"), "small": ("range", 10)}
KEYS = ("string", "small", "day", "bool", "big", "float")


@dataclass(frozen=True)
class Prop:
    """A property."""

    name: str
    kind: str
    nullable: bool

    def __str__(self) -> str:
        return f"{self.name}: {SCALARS[self.kind]}{'?' if self.nullable else ''}"


@dataclass(frozen=True)
class Kind:
    """A node type, or with `ends` an edge type."""

    name: str
    props: tuple[Prop, ...]
    key: tuple[str, ...] = ()
    uniques: tuple[tuple[str, ...], ...] = ()
    ends: tuple[str, str] | None = None
    low: int = 0
    high: int | None = None

    def prop(self, name: str) -> Prop:
        """Return a property by name."""
        return next(prop for prop in self.props if prop.name == name)

    def __str__(self) -> str:
        rules = [f"@key({', '.join(self.key)})"] if self.key else []
        rules += [f"@unique({', '.join(group)})" for group in self.uniques]
        if self.ends is None:
            rules += [f"@range({p.name}, 0..9)" for p in self.props if p.kind == "small"]
            rules += [f'@check({p.name}, "^[A-Z]+$")' for p in self.props if p.kind == "code"]
            head = f"node {self.name}"
        else:
            high = "" if self.high is None else self.high
            head = f"edge {self.name}: {self.ends[0]} -> {self.ends[1]} @card({self.low}..{high})"
        return f"{head} {{ {' '.join([*map(str, self.props), *rules])} }}"


@dataclass(frozen=True)
class Schema:
    """All types, nodes first."""

    kinds: tuple[Kind, ...]

    @property
    def nodes(self) -> tuple[Kind, ...]:
        """The node types."""
        return tuple(kind for kind in self.kinds if kind.ends is None)

    @property
    def edges(self) -> tuple[Kind, ...]:
        """The edge types."""
        return tuple(kind for kind in self.kinds if kind.ends is not None)

    def __str__(self) -> str:
        return "\n".join(map(str, self.kinds))


def props(kinds: tuple[str, ...] = tuple(SCALARS), most: int = 3) -> st.SearchStrategy[tuple[Prop, ...]]:
    """Return a few properties with names of their own."""
    one = st.tuples(st.sampled_from(kinds), st.booleans())
    return st.lists(one, max_size=most).map(
        lambda found: tuple(Prop(f"p{n}", kind, nullable) for n, (kind, nullable) in enumerate(found))
    )


@st.composite
def groups(draw: st.DrawFn, names: list[str]) -> tuple[tuple[str, ...], ...]:
    """Return unique groups over some properties."""
    if not names:
        return ()
    group = st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True).map(
        lambda g: tuple(sorted(g))
    )
    return tuple(draw(st.lists(group, max_size=2, unique=True)))


@st.composite
def node(draw: st.DrawFn, name: str) -> Kind:
    """Return a node type, with or without a key."""
    found = draw(props())
    wanted = draw(st.lists(st.sampled_from(KEYS), max_size=2))
    key = tuple(Prop(f"k{n}", kind, False) for n, kind in enumerate(wanted))
    if not key and not found:
        found = (Prop("p0", "string", True),)
    return Kind(name, (*key, *found), tuple(p.name for p in key), draw(groups([p.name for p in found])))


@st.composite
def edge(draw: st.DrawFn, name: str, nodes: list[str]) -> Kind:
    """Return an edge type, with or without a key."""
    found = draw(props(("string", "enum", "float", "moment"), most=2))
    wanted = draw(st.sampled_from([None, None, (), ("day",), ("float", "string")]))
    members = tuple(Prop(f"k{n}", kind, False) for n, kind in enumerate(wanted or ()))
    key = () if wanted is None else ("src", "dst", *(member.name for member in members))
    ends = (draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes)))
    low, high = draw(st.sampled_from([(0, None), (0, 1), (1, None), (1, 2), (2, None)]))
    uniques = draw(groups(["src", "dst", *(p.name for p in found)]))
    return Kind(name, (*members, *found), key, uniques, ends, low, high)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """Return one or two node types, and up to two edge types between them."""
    nodes = [draw(node(name)) for name in ("Ant", "Bee")[: draw(st.integers(1, 2))]]
    names = [kind.name for kind in nodes]
    edges = [draw(edge(name, names)) for name in ("Eats", "Fears")[: draw(st.sampled_from([1, 1, 2, 0]))]]
    return Schema((*nodes, *edges))
