"""Declarations: does the schema hang together as a whole (stage 6).

    text -> tree -> **checked schema** -> catalog

Room    language.schema.check. Nodes, edges and interfaces are three namespaces; edges join nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.language.diagnostics import Reporter
from omnigraph.language.schema import rules
from omnigraph.language.schema.tree import DeclarationSyntax, EdgeSyntax, PropertySyntax, SchemaSyntax
from omnigraph.language.suggest import did_you_mean

Broken = frozenset[tuple[str, str]]


def check_declarations(schema: SchemaSyntax, broken: Broken, reporter: Reporter) -> None:
    """Check names against each other, and the endpoints of edges."""
    for declarations in (schema.interfaces, schema.nodes, schema.edges):
        _check_duplicates(declarations, reporter)
    for declaration in schema.declarations:
        _check_properties(declaration.kind, declaration.name.text, declaration.properties, reporter)
    _check_collisions(schema.edges, reporter)
    _check_endpoints(schema, broken, reporter)


def _check_duplicates(declarations: Sequence[DeclarationSyntax], reporter: Reporter) -> None:
    first: dict[str, DeclarationSyntax] = {}
    for declaration in declarations:
        earlier = first.setdefault(declaration.name.text, declaration)
        if earlier is not declaration:
            name = declaration.name
            message = (
                f"duplicate {declaration.kind} '{name.text}', first declared on line {earlier.name.span.line}"
            )
            reporter.report(rules.DUPLICATE_TYPE, message, name.span, "rename or remove one of them")


def _check_properties(
    kind: str, owner: str, properties: Sequence[PropertySyntax], reporter: Reporter
) -> None:
    first: dict[str, PropertySyntax] = {}
    for declared in properties:
        earlier = first.setdefault(declared.name.text, declared)
        if earlier is not declared:
            name = declared.name
            line = earlier.name.span.line
            message = f"duplicate property '{name.text}' in {kind} {owner}, first declared on line {line}"
            reporter.report(rules.DUPLICATE_PROPERTY, message, name.span, "rename or remove one of them")


def _check_collisions(edges: Sequence[EdgeSyntax], reporter: Reporter) -> None:
    first: dict[str, EdgeSyntax] = {}
    for edge in edges:
        earlier = first.setdefault(edge.name.text.casefold(), edge)
        if earlier.name.text != edge.name.text:
            reporter.report(
                rules.EDGE_COLLISION,
                f"edge name collision after case folding: '{edge.name.text}' "
                f"conflicts with '{earlier.name.text}'",
                edge.name.span,
                "queries match edge names ignoring case: rename one of them",
            )


def _check_endpoints(schema: SchemaSyntax, broken: Broken, reporter: Reporter) -> None:
    interfaces = {interface.name.text for interface in schema.interfaces}
    nodes = {node.name.text for node in schema.nodes}
    unread = {name for kind, name in broken if kind == "node"}
    for edge in schema.edges:
        for side, name in (("source", edge.source), ("target", edge.target)):
            if name.text in nodes or name.text in unread:
                continue
            hint = did_you_mean(name.text, nodes)
            if name.text in interfaces:
                hint = f"{name.text} is an interface; an edge joins node types"
            message = f"edge {edge.name.text} references unknown {side} type: {name.text}"
            reporter.report(rules.ENDPOINT, message, name.span, hint)
