"""Hypothesis strategies for schemas: valid texts that use every construct, in any layout.

`schemas()` draws names from small pools, so that two schemas drawn one after the other share many of them:
drawn as (accepted, desired) they make a migration worth planning.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

TYPES = ["Person", "Book", "Node", "Edge", "A", "B_1", "True", "Implements"]
INTERFACES = ["Titled", "Person", "Dated"]
EDGES = ["Knows", "Wrote", "Book", "WorksAt"]
PROPERTIES = ["name", "node", "type", "true", "createdAt", "_x", "_row_id", "enum", "n2", "when", "interface"]
INHERITED = ["title", "slug", "at"]
VARIANTS = ["a", "data-eng", "2024", "i-owe", "-", "A_b", "node"]
NUMBERS = ["I32", "I64", "U32", "U64", "F32", "F64"]
SCALARS = [*NUMBERS, "String", "Bool", "Date", "DateTime", "Blob"]
PATTERNS = ["^[a-z]+$", "a|b", "\\d{2,3}", '"', "é+", "[\n\t]"]

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda t: t.strip() != "")
spaces = st.sampled_from([" ", "\n", "\t", "  ", ' // a "note" {\n', " /* node X { */ ", "\r\n"])


def quoted(text: str) -> str:
    """Spell a string literal, independently of the printer."""
    escapes = {'"': '\\"', "\\": "\\\\", "\r": "\\r"}
    return '"' + "".join(escapes.get(char, char) for char in text) + '"'


@dataclass
class Declared:
    """A property in the making."""

    name: str
    type: str
    annotations: list[str] = field(default_factory=list)

    @property
    def base(self) -> str:
        """The type without `?`."""
        return self.type.removesuffix("?")

    @property
    def scalar(self) -> bool:
        """Say whether keys and unique constraints can use it."""
        return not self.base.startswith(("[", "Vector", "Blob"))

    @property
    def textual(self) -> bool:
        """Say whether it is a String or an enum."""
        return self.base == "String" or self.base.startswith("enum")

    def words(self) -> list[str]:
        """The declaration, word by word."""
        return [f"{self.name}", ":", self.type, *self.annotations]


@st.composite
def types(draw: DrawFn) -> str:
    """A type, nullable or not."""
    kind = draw(st.sampled_from(["scalar", "scalar", "list", "vector", "enum"]))
    if kind == "scalar":
        text = draw(st.sampled_from(SCALARS))
    elif kind == "list":
        text = f"[{draw(st.sampled_from([s for s in SCALARS if s != 'Blob']))}]"
    elif kind == "vector":
        text = f"Vector({draw(st.sampled_from([1, 3, 768, 65536]))})"
    else:
        values = draw(st.lists(st.sampled_from(VARIANTS), min_size=1, max_size=4, unique=True))
        text = f"enum({', '.join(values)})"
    return text + draw(st.sampled_from(["", "?"]))


@st.composite
def metadata(draw: DrawFn, *, on_type: bool) -> list[str]:
    """Annotations that anything may have."""
    found = []
    if draw(st.integers(0, 3)) == 0:
        found.append(f"@description({quoted(draw(texts))})")
    if on_type and draw(st.integers(0, 3)) == 0:
        found.append(f"@instruction({quoted(draw(texts))})")
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        found.append(draw(custom()))
    return found


@st.composite
def custom(draw: DrawFn) -> str:
    """An annotation without a meaning."""
    name = f"@{draw(st.sampled_from(['tier', 'owner', 'node', 'x_1']))}"
    if draw(st.booleans()):
        return name
    argument = draw(st.sampled_from(["2", "2.50", "true", "someone", quoted("a, b"), quoted('a\\"\n')]))
    keywords = draw(st.sampled_from(["", ", k=1", ', k="v", other=false']))
    return f"{name}({argument}{keywords})"


@st.composite
def defaults(draw: DrawFn, declared: Declared) -> str | None:
    """A default that fits, or None for types that cannot have one."""
    base = declared.base
    if base.startswith("enum"):
        return quoted(base[5:-1].split(", ")[0])
    values = {
        "String": [quoted(""), quoted("né")],
        "Bool": ["true", "false"],
        "Date": ["now", quoted("2026-01-31")],
        "DateTime": ["now", quoted("2026-01-31T09:30:00.125Z")],
        "F32": ["0.1", "-3"],
        "F64": ["0.1", "25"],
        "I32": ["-1", "007"],
        "I64": ["-9223372036854775808"],
        "U32": ["4294967295"],
        "U64": ["18446744073709551615"],
    }.get(base)
    return None if values is None else draw(st.sampled_from(values))


@st.composite
def properties(draw: DrawFn, pool: list[str], *, most: int = 5) -> list[Declared]:
    """Properties with annotations that any owner allows; names are distinct."""
    found = []
    for name in draw(st.lists(st.sampled_from(pool), max_size=most, unique=True)):
        declared = Declared(name, draw(types()))
        if declared.scalar and draw(st.integers(0, 4)) == 0:
            declared.annotations.append("@unique")
        if not declared.base.startswith(("[", "Blob")) and draw(st.integers(0, 3)) == 0:
            declared.annotations.append("@index")
        value = draw(defaults(declared))
        if value is not None and draw(st.integers(0, 3)) == 0:
            declared.annotations.append(f"@default({value})")
        declared.annotations += draw(metadata(on_type=False))
        found.append(declared)
    return found


@st.composite
def constraints(draw: DrawFn, members: list[Declared], *, edge: bool) -> list[str]:
    """Body constraints over properties that exist."""
    ends = ["src", "dst"] if edge else []
    found = []
    unique = [m.name for m in members if m.scalar] + ends
    index = [m.name for m in members if m.base != "Blob"] + ends
    for kind, names in (("unique", unique), ("index", index)):
        if names and draw(st.integers(0, 2)) == 0:
            chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
            found.append(f"@{kind}({', '.join(chosen)})")
    if edge:
        return found
    for member in members:
        if member.base in NUMBERS and draw(st.integers(0, 2)) == 0:
            bounds = draw(st.sampled_from(["1..10", "-5..", "..2.5", "-1.5..1.50", "0..0"]))
            found.append(f"@range({member.name}, {bounds})")
        if member.textual and draw(st.integers(0, 2)) == 0:
            found.append(f"@check({member.name}, {quoted(draw(st.sampled_from(PATTERNS)))})")
    return found


@st.composite
def keys(draw: DrawFn, members: list[Declared]) -> list[str]:
    """At most one key: inline (which annotates the member) or in the body (which is returned)."""
    able = [m for m in members if m.scalar and not m.type.endswith("?")]
    choice = draw(st.sampled_from(["none", "inline", "body"]))
    if not able or choice == "none":
        return []
    if choice == "inline":
        draw(st.sampled_from(able)).annotations.insert(0, "@key")
        return []
    chosen = draw(st.lists(st.sampled_from([m.name for m in able]), min_size=1, max_size=3))
    return [f"@key({', '.join(chosen)})"]


@st.composite
def embeds(draw: DrawFn, members: list[Declared]) -> None:
    """Let vectors embed a text of the same node."""
    sources = [m.name for m in members if m.textual]
    for member in members:
        if sources and member.base.startswith("Vector") and draw(st.booleans()):
            source = draw(st.sampled_from(sources))
            model = draw(st.sampled_from(["", ', model="acme/embed-1"']))
            written = source if not model and source != "true" else quoted(source)
            member.annotations.append(f"@embed({written}{model})")


@st.composite
def words(draw: DrawFn) -> list[str]:
    """A valid schema, word by word."""
    interfaces: dict[str, list[Declared]] = {}
    pools = draw(st.permutations(INHERITED))
    for name, pool in zip(
        draw(st.lists(st.sampled_from(INTERFACES), max_size=3, unique=True)), pools, strict=False
    ):
        interfaces[name] = draw(properties([pool, f"{pool}_2"], most=2))
    nodes = draw(st.lists(st.sampled_from(TYPES), max_size=4, unique=True))
    declarations = [
        ["interface", name, "{", *(w for p in inherited for w in p.words()), "}"]
        for name, inherited in interfaces.items()
    ]
    for name in nodes:
        declarations.append(draw(_node(name, interfaces)))
    for name in draw(st.lists(st.sampled_from(EDGES), max_size=3, unique=True)) if nodes else []:
        declarations.append(draw(_edge(name, nodes)))
    return [word for declaration in draw(st.permutations(declarations)) for word in declaration]


@st.composite
def _node(draw: DrawFn, name: str, interfaces: dict[str, list[Declared]]) -> list[str]:
    chosen = draw(st.lists(st.sampled_from(sorted(interfaces)), max_size=3)) if interfaces else []
    own = draw(properties(PROPERTIES))
    inherited = [p for interface in dict.fromkeys(chosen) for p in interfaces[interface]]
    redeclared = [Declared(p.name, p.type) for p in inherited if draw(st.integers(0, 3)) == 0]
    own += redeclared
    body_key = draw(keys(own))
    draw(embeds(own))
    taken = {p.name for p in own}
    members = own + [p for p in inherited if p.name not in taken]
    body = draw(constraints(members, edge=False)) + body_key
    implements = ["implements", ", ".join(chosen)] if chosen else []
    header = ["node", name, *draw(metadata(on_type=True)), *implements]
    return [*header, "{", *(w for p in own for w in p.words()), *body, "}"]


@st.composite
def _edge(draw: DrawFn, name: str, nodes: list[str]) -> list[str]:
    source, target = draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes))
    card = draw(st.sampled_from([[], ["@card(0..1)"], ["@card(1..)"], ["@card(2..5)"]]))
    header = ["edge", name, ":", source, "->", target, *card, *draw(metadata(on_type=True))]
    own = draw(properties(PROPERTIES, most=3))
    body = draw(constraints(own, edge=True))
    if not own and not body and draw(st.booleans()):
        return header
    return [*header, "{", *(w for p in own for w in p.words()), *body, "}"]


@st.composite
def schemas(draw: DrawFn) -> str:
    """A valid schema text; spaces and comments stand between any two words."""
    parts = []
    for word in draw(words()):
        parts += [word, draw(spaces)]
    return draw(spaces) + "".join(parts)


def plain_schemas() -> SearchStrategy[str]:
    """A valid schema text without comments, in one line."""
    return words().map(" ".join)
