"""Declarations: interfaces, and whether the schema hangs together as a whole (stages 3 and 6).

    text -> tree -> **expanded** -> checked schema -> catalog

Nodes, edges and interfaces are three namespaces; edges join nodes. A node gets the properties of the
interfaces that it implements, in order. A property in the node's own body wins and keeps only its own
annotations; an inherited one brings those of its interface. The result is every node with its properties, and
where each came from; disagreements are reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.base.dataclass import dataclass
from omnigraph.language.diagnostics import Reporter, did_you_mean
from omnigraph.language.schema import rules
from omnigraph.language.schema.tree import (
    DeclarationSyntax,
    EdgeSyntax,
    InterfaceSyntax,
    NodeSyntax,
    PropertySyntax,
    SchemaSyntax,
)
from omnigraph.language.syntax import BadType, Ident

Unread = frozenset[tuple[str, str]]  # kind and name of the declarations with a syntax error


@dataclass(frozen=True, slots=True)
class ExpandedProperty:
    """A property of a node; `interface` names where it was inherited from."""

    declared: PropertySyntax
    interface: str | None = None

    @property
    def name(self) -> str:
        """The property's name."""
        return self.declared.name.text


@dataclass(frozen=True, slots=True)
class ExpandedNode:
    """A node with its own and its inherited properties.

    `complete` is False when an interface could not be read: then a missing property proves nothing.
    """

    node: NodeSyntax
    members: tuple[ExpandedProperty, ...]
    complete: bool = True

    def find(self, name: str) -> ExpandedProperty | None:
        """Return the member of a name."""
        return next((m for m in self.members if m.name == name), None)


def expand(schema: SchemaSyntax, unread: Unread, reporter: Reporter) -> tuple[ExpandedNode, ...]:
    """Expand all nodes, in the order written."""
    interfaces: dict[str, InterfaceSyntax] = {}
    for interface in schema.interfaces:
        interfaces.setdefault(interface.name.text, interface)
    return tuple(_expand(node, interfaces, unread, reporter) for node in schema.nodes)


def _expand(
    node: NodeSyntax,
    interfaces: dict[str, InterfaceSyntax],
    unread: Unread,
    reporter: Reporter,
) -> ExpandedNode:
    members: dict[str, ExpandedProperty] = {}
    for declared in node.properties:
        members.setdefault(declared.name.text, ExpandedProperty(declared))
    complete = True
    for name in dict.fromkeys(node.implements):
        interface = interfaces.get(name.text)
        if interface is None:
            complete = False
            if ("interface", name.text) not in unread:
                _report_unknown(node, name, interfaces, reporter)
            continue
        for inherited in interface.properties:
            present = members.get(inherited.name.text)
            if present is None:
                members[inherited.name.text] = ExpandedProperty(inherited, interface.name.text)
            else:
                _compare(node, name, present, inherited, reporter)
    return ExpandedNode(node, tuple(members.values()), complete)


def _report_unknown(
    node: NodeSyntax, name: Ident, interfaces: dict[str, InterfaceSyntax], reporter: Reporter
) -> None:
    reporter.report(
        rules.UNKNOWN_INTERFACE,
        f"node {node.name.text} implements unknown interface '{name.text}'",
        name.span,
        did_you_mean(name.text, interfaces) or f"declare it: interface {name.text} {{ }}",
    )


def _compare(
    node: NodeSyntax,
    interface: Ident,
    present: ExpandedProperty,
    inherited: PropertySyntax,
    reporter: Reporter,
) -> None:
    ours, theirs = present.declared.type, inherited.type
    if isinstance(ours.shape, BadType) or isinstance(theirs.shape, BadType):
        return
    owner, name = node.name.text, present.name
    if not ours.same_as(theirs):
        span = ours.span if present.interface is None else interface.span
        reporter.report(
            rules.INTERFACE_TYPE,
            f"node {owner} property '{name}' has type {ours} "
            f"but interface {interface.text} declares it as {theirs}",
            span,
            f"write '{name}: {theirs}'" if present.interface is None else None,
        )
    elif present.interface is not None and _semantics(present.declared) != _semantics(inherited):
        reporter.report(
            rules.INCOMPATIBLE,
            f"interfaces contributing '{owner}.{name}' have incompatible property semantics: "
            f"{present.interface} and {interface.text} annotate it differently",
            interface.span,
            f"declare '{name}' in node {owner}, with the annotations that it should have",
        )


def _semantics(declared: PropertySyntax) -> frozenset[object]:
    """What two interfaces must agree about, besides the type: all annotations, in any order."""
    return frozenset(
        (a.name.text, a.value, frozenset((k.name.text, k.value.text) for k in a.keywords))
        for a in declared.annotations
    )


# -- names -------------------------------------------------------------------------------------------


def check_declarations(schema: SchemaSyntax, unread: Unread, reporter: Reporter) -> None:
    """Check names against each other, and the endpoints of edges."""
    for declarations in (schema.interfaces, schema.nodes, schema.edges):
        _check_duplicates(declarations, reporter)
    for declaration in schema.declarations:
        _check_properties(declaration.kind, declaration.name.text, declaration.properties, reporter)
    _check_collisions(schema.edges, reporter)
    _check_endpoints(schema, unread, reporter)


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


def _check_endpoints(schema: SchemaSyntax, unread: Unread, reporter: Reporter) -> None:
    interfaces = {interface.name.text for interface in schema.interfaces}
    nodes = {node.name.text for node in schema.nodes}
    unread_nodes = {name for kind, name in unread if kind == "node"}
    for edge in schema.edges:
        for side, name in (("source", edge.source), ("target", edge.target)):
            if name.text in nodes or name.text in unread_nodes:
                continue
            hint = did_you_mean(name.text, nodes)
            if name.text in interfaces:
                hint = f"{name.text} is an interface; an edge joins node types"
            message = f"edge {edge.name.text} references unknown {side} type: {name.text}"
            reporter.report(rules.ENDPOINT, message, name.span, hint)
