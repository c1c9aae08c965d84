"""Diagram: a schema as a picture, in the languages of Mermaid and Graphviz.

Text only; whoever shows it draws it.

The same schema gives the same text. Names of the schema never reach the picture as syntax: boxes have ids of
our own, and labels are quoted.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import Cardinality, EdgeType, Index, InterfaceType, NodeType, TableType, Unique
from omnigraph.catalog.types import PropertyType, Scalar

# Mermaid takes a member with parentheses for a method, and `~` for a generic.
_BOX = "{kind}_{name}"


def mermaid(catalog: Catalog) -> str:
    """Return a Mermaid class diagram.

    The number at the arrow's head is `@card`: how many edges may leave one source.
    """
    lines = ["classDiagram"]
    for interface in catalog.interfaces:
        lines += _mermaid_box(interface, [(p.name, p.type, "") for p in interface.properties], "interface")
    for node in catalog.nodes:
        lines += _mermaid_box(node, [(p.name, p.type, _mark(node, p.id)) for p in node.properties])
    for node in catalog.nodes:
        for identity in node.implements:
            lines.append(f"    {_box_id(catalog, node.id)} ..|> {_box_id(catalog, identity)}")
    for edge in catalog.edges:
        source, target = _box_id(catalog, edge.source), _box_id(catalog, edge.target)
        lines.append(f'    {source} "*" --> "{_limits(edge.card)}" {target} : {_edge_label(edge)}')
    return "\n".join(lines) + "\n"


def _mermaid_box(
    declared: NodeType | InterfaceType,
    members: list[tuple[str, PropertyType, str]],
    stereotype: str | None = None,
) -> Iterator[str]:
    head = f'    class {_BOX.format(kind=declared.kind.value, name=declared.name)}["{declared.name}"]'
    if not members and stereotype is None:
        yield head
        return
    yield head + " {"
    if stereotype is not None:
        yield f"        <<{stereotype}>>"
    for name, declared_type, mark in members:
        yield f"        {name} : {_plain(declared_type)}{f' {mark}' if mark else ''}"
    yield "    }"


def _plain(declared: PropertyType) -> str:
    if declared.enum_values is not None:
        text = f"enum {' | '.join(declared.enum_values)}"
    elif declared.scalar is Scalar.VECTOR:
        text = f"Vector {declared.dimension}"
    else:
        text = f"[{declared.scalar.value}]" if declared.is_list else declared.scalar.value
    return f"{text}?" if declared.nullable else text


def dot(catalog: Catalog) -> str:
    """Return a Graphviz digraph: one table for each node type, one arrow for each edge type."""
    lines = ["digraph schema {", "    rankdir=LR;", "    node [shape=plain, fontname=Helvetica];"]
    for interface in catalog.interfaces:
        rows = [(p.name, str(p.type), "") for p in interface.properties]
        lines.append(f"    {_quoted(interface)} [label={_table(f'«interface» {interface.name}', rows)}];")
    for node in catalog.nodes:
        rows = [(p.name, str(p.type), _mark(node, p.id)) for p in node.properties]
        lines.append(f"    {_quoted(node)} [label={_table(node.name, rows)}];")
    for node in catalog.nodes:
        for identity in node.implements:
            target = _box_id(catalog, identity)
            lines.append(f'    {_quoted(node)} -> "{target}" [style=dashed, arrowhead=empty];')
    for edge in catalog.edges:
        source, target = _box_id(catalog, edge.source), _box_id(catalog, edge.target)
        label = f'label="{_edge_label(edge)}", headlabel="{_limits(edge.card)}"'
        lines.append(f'    "{source}" -> "{target}" [{label}];')
    return "\n".join([*lines, "}"]) + "\n"


def _table(title: str, rows: list[tuple[str, str, str]]) -> str:
    left = '<td align="left">'
    cells = "".join(
        f"<tr>{left}{escape(name)}</td>{left}{escape(text)}</td><td>{escape(mark)}</td></tr>"
        for name, text, mark in rows
    )
    head = f'<tr><td colspan="3"><b>{escape(title)}</b></td></tr>'
    return f'<<table border="0" cellborder="1" cellspacing="0">{head}{cells}</table>>'


# -- shared ------------------------------------------------------------------------------------------


def _quoted(declared: NodeType | InterfaceType) -> str:
    return f'"{_BOX.format(kind=declared.kind.value, name=declared.name)}"'


def _box_id(catalog: Catalog, identity: str) -> str:
    declared = catalog.by_id.get(identity)
    if declared is None:
        raise ValueError(f"the catalog names {identity!r} and does not hold it")
    return _BOX.format(kind=declared.kind.value, name=declared.name)


def _mark(declared: TableType, identity: str) -> str:
    """Say in a word what a property is for: a key, a unique value, something that is looked up."""
    if identity in declared.key:
        return "key"
    if Unique((identity,)) in declared.constraints:
        return "unique"
    return "index" if Index((identity,)) in declared.constraints else ""


def _limits(card: Cardinality) -> str:
    if card.unlimited:
        return "*"
    return f"{card.low}..{'*' if card.high is None else card.high}"


def _edge_label(edge: EdgeType) -> str:
    marks = ((p.name, _mark(edge, p.id) == "key") for p in edge.properties)
    names = ", ".join(f"{name} key" if is_key else name for name, is_key in marks)
    label = f"{edge.name} key" if edge.key else edge.name
    return f"{label} [{names}]" if names else label
