"""Expand: give each node the properties of the interfaces that it implements.

    text -> tree -> **expanded** -> checked schema -> catalog

Room    language.schema. Interfaces are worked off in the order written. A property in the node's own body
        wins and keeps only its own annotations; an inherited one brings those of its interface.
Gives   every node with its members, and where each came from; disagreements are reported.
"""

from __future__ import annotations

from omnigraph.base.frozen import FrozenRecord
from omnigraph.language.diagnostics import Reporter
from omnigraph.language.schema import rules
from omnigraph.language.schema.tree import (
    BadType,
    Ident,
    InterfaceSyntax,
    NodeSyntax,
    PropertySyntax,
    SchemaSyntax,
)
from omnigraph.language.suggest import did_you_mean


class ExpandedProperty(FrozenRecord):
    """A property of a node; `interface` names where it was inherited from."""

    declared: PropertySyntax
    interface: str | None = None

    @property
    def name(self) -> str:
        """The property's name."""
        return self.declared.name.text


class ExpandedNode(FrozenRecord):
    """A node with its own and its inherited properties.

    `complete` is False when an interface could not be read: then a missing property proves nothing.
    """

    node: NodeSyntax
    members: tuple[ExpandedProperty, ...]
    complete: bool = True

    def find(self, name: str) -> ExpandedProperty | None:
        """Return the member of a name."""
        return next((m for m in self.members if m.name == name), None)


def expand(
    schema: SchemaSyntax, broken: frozenset[tuple[str, str]], reporter: Reporter
) -> tuple[ExpandedNode, ...]:
    """Expand all nodes, in the order written."""
    interfaces: dict[str, InterfaceSyntax] = {}
    for interface in schema.interfaces:
        interfaces.setdefault(interface.name.text, interface)
    return tuple(_expand(node, interfaces, broken, reporter) for node in schema.nodes)


def _expand(
    node: NodeSyntax,
    interfaces: dict[str, InterfaceSyntax],
    broken: frozenset[tuple[str, str]],
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
            if ("interface", name.text) not in broken:
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
