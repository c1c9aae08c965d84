"""Match: which accepted type or property each declaration continues.

Room    catalog, inside resolve.py. Mints nothing and builds nothing.
Rule    the same kind and name is the same thing, and a hint on it is idle. Otherwise the hint decides.
        A hint that comes with an inherited property speaks to every node that inherits it: where it finds
        nothing to rename, it is idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import (
    AnyType,
    InterfaceProperty,
    Property,
    TypeKind,
)
from omnigraph.language.diagnostics import Diagnostic, Rule, Span
from omnigraph.language.schema import CheckedSchema, rules
from omnigraph.language.schema import tree as ast
from omnigraph.language.schema.expand import Member
from omnigraph.language.suggest import did_you_mean

AnyProperty = Property | InterfaceProperty


@dataclass(frozen=True, slots=True)
class PropertyMatch:
    """A declared property and the accepted one that it continues, if any."""

    declared: ast.Property
    accepted: AnyProperty | None

    @property
    def name(self) -> str:
        """The declared name."""
        return self.declared.name.text


@dataclass(frozen=True, slots=True)
class TypeMatch:
    """A declaration, its properties by name, and the accepted type that it continues, if any."""

    declared: ast.Declaration
    accepted: AnyType | None
    properties: tuple[PropertyMatch, ...]

    @property
    def name(self) -> str:
        """The declared name."""
        return self.declared.name.text


@dataclass(frozen=True, slots=True)
class Hint:
    """An old name, and where it stands."""

    old: str
    span: Span


@dataclass(frozen=True, slots=True)
class Claim:
    """Who continues an accepted declaration; `hint` says that it does so under another name."""

    label: str
    name: Span
    hint: Span | None

    @property
    def span(self) -> Span:
        """Where a second claim is reported: at the hint, since that is what can be wrong."""
        return self.hint or self.name


@dataclass
class Matcher:
    """Matches one schema; `errors` and `notes` hold what it found on the way."""

    checked: CheckedSchema
    accepted: Catalog | None
    errors: list[Diagnostic] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    _claimed: dict[str, Claim] = field(default_factory=dict)  # by accepted id

    def run(self) -> tuple[TypeMatch, ...]:
        """Match everything: interfaces, nodes, edges, each by name."""
        found: list[TypeMatch] = []
        for interface in sorted(self.checked.interfaces, key=lambda d: d.name.text):
            found.append(self._type(interface, (), [Member(p) for p in interface.properties]))
        for node in sorted(self.checked.nodes, key=lambda n: n.node.name.text):
            found.append(self._type(node.node, node.node.annotations, node.members))
        for edge in sorted(self.checked.edges, key=lambda d: d.name.text):
            found.append(self._type(edge, edge.annotations, [Member(p) for p in edge.properties]))
        return tuple(found)

    # -- types ---------------------------------------------------------------------------------------

    def _type(
        self,
        declared: ast.Declaration,
        annotations: Sequence[ast.Annotation],
        members: Sequence[Member],
    ) -> TypeMatch:
        label = f"{declared.kind} {declared.name.text}"
        hint = _hint(annotations)
        continued = self._continued(declared, label, hint)
        if continued is not None:
            what = f"{continued.kind.value} '{continued.name}'"
            claim = _claim(label, declared.name, continued.name, hint)
            if not self._claim(continued, what, claim):
                return TypeMatch(declared, None, ())  # its properties would all be claimed twice as well
        properties = tuple(
            self._property(declared, member, continued) for member in sorted(members, key=lambda m: m.name)
        )
        return TypeMatch(declared, continued, properties)

    def _continued(self, declared: ast.Declaration, label: str, hint: Hint | None) -> AnyType | None:
        same = self._accepted(TypeKind(declared.kind), declared.name.text)
        if same is not None or hint is None:
            if hint is not None:
                self._note_ignored(label, hint)
            return same
        if self.accepted is None:
            self._note_inert(label, hint)
            return None
        old = self._accepted(TypeKind(declared.kind), hint.old)
        if old is not None:
            return old
        if any(self._accepted(kind, hint.old) for kind in TypeKind):
            message = f"{label} cannot rename accepted '{hint.old}' across declaration kinds"
            self._error(rules.RENAME_KIND, message, hint.span)
        else:
            message = f'{label} declares @rename_from("{hint.old}") but no accepted declaration has that name'
            known = self._names(TypeKind(declared.kind))
            suggestion = did_you_mean(hint.old, known) or "remove the hint if the type is new"
            self._error(rules.RENAME_UNKNOWN, message, hint.span, suggestion)
        return None

    def _accepted(self, kind: TypeKind, name: str) -> AnyType | None:
        if self.accepted is None:
            return None
        match kind:
            case TypeKind.INTERFACE:
                return self.accepted.find_interface(name)
            case TypeKind.NODE:
                return self.accepted.find_node(name)
            case TypeKind.EDGE:
                edge = self.accepted.find_edge(name)  # which ignores case; a rename may change only that
                return edge if edge is not None and edge.name == name else None

    def _names(self, kind: TypeKind) -> list[str]:
        return [t.name for t in self._of_kind(kind)]

    def _of_kind(self, kind: TypeKind) -> Sequence[AnyType]:
        if self.accepted is None:
            return ()
        match kind:
            case TypeKind.INTERFACE:
                return self.accepted.interfaces
            case TypeKind.NODE:
                return self.accepted.nodes
            case TypeKind.EDGE:
                return self.accepted.edges

    # -- properties ----------------------------------------------------------------------------------

    def _property(self, owner: ast.Declaration, member: Member, continued: AnyType | None) -> PropertyMatch:
        declared = member.declared
        label = f"property {owner.name.text}.{member.name}"
        accepted = self._continued_property(member, label, continued)
        if accepted is not None and continued is not None:
            claim = _claim(label, declared.name, accepted.name, _hint(declared.annotations))
            self._claim(accepted, f"property '{continued.name}.{accepted.name}'", claim)
        return PropertyMatch(declared, accepted)

    def _continued_property(
        self, member: Member, label: str, continued: AnyType | None
    ) -> AnyProperty | None:
        hint = _hint(member.declared.annotations)
        same = None if continued is None else continued.find(member.name)
        if same is not None or hint is None:
            if hint is not None:
                self._note_ignored(label, hint)
            return same
        old = None if continued is None else continued.find(hint.old)
        if old is not None:
            return old
        if self.accepted is None or member.interface is not None:
            self._note_inert(label, hint)
        elif continued is None:
            message = f'{label}: @rename_from("{hint.old}") cannot import property identity into a new type'
            self._error(rules.RENAME_NEW_TYPE, message, hint.span, "remove the hint")
        elif self._lives_elsewhere(hint.old):
            message = (
                f'{label} declares @rename_from("{hint.old}"), which another type has: '
                "property moves across stable owners are not supported"
            )
            self._error(rules.RENAME_MOVE, message, hint.span)
        else:
            message = (
                f'{label} declares @rename_from("{hint.old}") but '
                "no accepted property with that name exists under the stable owner"
            )
            suggestion = did_you_mean(hint.old, (p.name for p in continued.properties))
            self._error(rules.RENAME_PROPERTY, message, hint.span, suggestion)
        return None

    def _lives_elsewhere(self, name: str) -> bool:
        every = (t for kind in TypeKind for t in self._of_kind(kind))
        return any(t.find(name) is not None for t in every)

    # -- findings ------------------------------------------------------------------------------------

    def _claim(self, accepted: AnyType | AnyProperty, what: str, claim: Claim) -> bool:
        """Say whether this is the only claim so far; a second one is reported."""
        other = self._claimed.setdefault(accepted.id, claim)
        if other is claim:
            return True
        wrong = claim if claim.hint is not None else other
        message = (
            f"accepted {what} is consumed by more than one desired declaration: {other.label}, {claim.label}"
        )
        self._error(rules.RENAME_TWICE, message, wrong.span, "only one of them can keep the data")
        return False

    def _note_ignored(self, label: str, hint: Hint) -> None:
        message = f'{label} exists already; @rename_from("{hint.old}") is ignored'
        self.notes.append(Diagnostic(rules.IGNORED_HINT, message, hint.span, "the hint can be removed"))

    def _note_inert(self, label: str, hint: Hint) -> None:
        message = f'{label}: there is nothing that @rename_from("{hint.old}") could rename'
        self.notes.append(Diagnostic(rules.INERT_HINT, message, hint.span, "the hint can be removed"))

    def _error(self, rule: Rule, message: str, span: Span, suggestion: str | None = None) -> None:
        self.errors.append(Diagnostic(rule, message, span, suggestion))


def _hint(annotations: Sequence[ast.Annotation]) -> Hint | None:
    for annotation in annotations:
        if annotation.name.text == "rename_from" and annotation.argument is not None:
            return Hint(annotation.argument.text, annotation.argument.span)
    return None


def _claim(label: str, name: ast.Ident, accepted: str, hint: Hint | None) -> Claim:
    renamed = hint is not None and accepted != name.text
    return Claim(label, name.span, hint.span if hint is not None and renamed else None)
