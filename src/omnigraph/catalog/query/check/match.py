"""Check match: resolve the clauses of a match.

    tree -> **checked read**

Bindings, traversals, filters and nested blocks; reports T1 to T5, T9, T14, T22, T23.

Names resolve from top to bottom. A name is a parameter or a variable, never both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omnigraph.catalog.model import NodeType, Property, TableType
from omnigraph.catalog.query.check.conditions import ConditionChecker
from omnigraph.catalog.query.check.scope import QueryFindings, Scope, Traverser
from omnigraph.catalog.query.expressions import Comparison, Condition, Contains, PropertyValue, Variable
from omnigraph.catalog.query.statements import (
    Bind,
    Clause,
    ClauseBlock,
    Counted,
    Exists,
    Expand,
    Filter,
    Optional,
)
from omnigraph.catalog.types import Scalar
from omnigraph.language.literals import LiteralSyntax
from omnigraph.language.query import rules
from omnigraph.language.query import tree as ast


class MatchChecker:
    """Resolves clauses; `reads` are the types that they touch."""

    def __init__(self, findings: QueryFindings, conditions: ConditionChecker) -> None:
        self._findings = findings
        self._catalog = findings.catalog
        self._conditions = conditions
        self._traverser = Traverser(findings)
        self.reads: list[TableType] = []

    def clauses(self, clauses: Sequence[ast.ClauseSyntax], scope: Scope) -> tuple[Clause, ...]:
        """Resolve clauses in order; those with a fault are left out."""
        checked = [self._clause(clause, scope) for clause in clauses]
        return tuple(clause for clause in checked if clause is not None)

    def _clause(self, clause: ast.ClauseSyntax, scope: Scope) -> Clause | None:
        match clause:
            case ast.BindingSyntax():
                return self._binding(clause, scope)
            case ast.TraversalSyntax():
                return self._traversal(clause, scope)
            case ast.FilterSyntax(condition):
                checked = self._conditions.condition(condition, scope)
                return None if checked is None else Filter(checked)
            case ast.CountBlockSyntax(clauses, operator, number):
                return Counted(self._block(clause, clauses, "count", scope), operator, number)
            case ast.BlockSyntax(ast.BlockKind.OPTIONAL, clauses):
                return Optional(self._block(clause, clauses, "optional", scope))
            case ast.BlockSyntax(kind, clauses):
                return Exists(self._block(clause, clauses, kind.value, scope), kind is ast.BlockKind.NOT)

    def _block(
        self,
        written: ast.BlockSyntax | ast.CountBlockSyntax,
        clauses: Sequence[ast.ClauseSyntax],
        word: str,
        scope: Scope,
    ) -> ClauseBlock:
        inner = scope.inside(optional=word == "optional")
        checked = self.clauses(clauses, inner)
        if not inner.mentioned and word != "optional":
            message = f"the '{word}' block mentions no variable that is bound above it"
            self._findings.report(rules.GROUPING, message, written.span)
        block = ClauseBlock(checked, tuple(inner.introduced), inner.uses)
        scope.leave(inner)
        return block

    # -- bindings ------------------------------------------------------------------------------------

    def _binding(self, binding: ast.BindingSyntax, scope: Scope) -> Clause | None:
        declared = self._node_type(binding)
        variable, new = self._bound(binding, declared, scope)
        if declared is None:
            return None
        self.reads.append(declared)
        conditions: list[Condition] = []
        for field in binding.fields:
            condition = self._entry(field, declared, variable)
            if condition is not None:
                conditions.append(condition)
        return None if variable is None else Bind(variable, tuple(conditions), new)

    def _node_type(self, binding: ast.BindingSyntax) -> NodeType | None:
        name = binding.type.text
        declared = self._catalog.find_node(name)
        if declared is None:
            message = f"there is no node type '{name}'"
            if self._catalog.find_interface(name) is not None:
                message += ": an interface cannot be bound"
            elif self._catalog.find_edge(name) is not None:
                message += ": an edge is bound in a traversal, as in '$a $e:edge $b'"
            known = (node.name for node in self._catalog.nodes)
            self._findings.unknown(rules.UNKNOWN_NODE, message, binding.type.span, name, known)
        return declared

    def _bound(
        self, binding: ast.BindingSyntax, declared: NodeType | None, scope: Scope
    ) -> tuple[Variable | None, bool]:
        """Return the variable, and whether the binding introduces it."""
        variable = binding.variable
        if variable.anonymous:
            return (None if declared is None else scope.bind("", declared, anonymous=True)), True
        if self._is_parameter(variable):
            return None, False
        if variable.name not in scope:
            if declared is None:
                scope.poison(variable.name)
                return None, False
            return scope.bind(variable.name, declared), True
        bound = scope.find(variable.name)
        if bound is None or declared is None:
            return None, False
        if bound.is_edge:
            message = f"'${variable.name}' is an edge and cannot be bound as a node"
            self._findings.report(rules.EDGE_BINDING, message, variable.span)
            return None, False
        if bound.type.id != declared.id:
            message = f"variable '${variable.name}' is already bound to type {bound.type.name}"
            self._findings.report(rules.REBOUND, message, variable.span)
            return None, False
        return bound, False

    def _is_parameter(self, variable: ast.VarSyntax) -> bool:
        if variable.name not in self._findings.parameters:
            return False
        message = f"'${variable.name}' is a parameter and cannot be bound by the match"
        self._findings.report(rules.PARAMETER_BOUND, message, variable.span, "rename one of the two")
        return True

    def _entry(
        self, field: ast.FieldSyntax, declared: NodeType, variable: Variable | None
    ) -> Condition | None:
        member = declared.find(field.name.text)
        if member is None:
            message = f"node type {declared.name} has no property '{field.name.text}'"
            known = (p.name for p in declared.properties)
            self._findings.unknown(rules.UNKNOWN_ENTRY, message, field.name.span, field.name.text, known)
            if isinstance(field.value, ast.VarSyntax):
                self._findings.parameter(field.value)
            return None
        return self._holds(field, member, f"{declared.name}.{member.name}", variable)

    def _holds(
        self, field: ast.FieldSyntax, declared: Property, place: str, variable: Variable | None
    ) -> Condition | None:
        if declared.type.scalar in (Scalar.BLOB, Scalar.VECTOR):
            literal = isinstance(field.value, LiteralSyntax | ast.ListSyntax)
            rule = rules.MISFIT if literal or declared.type.scalar is Scalar.BLOB else rules.INCOMPATIBLE
            message = f"{place} is a {declared.type.scalar.value} and cannot be matched"
            self._findings.report(rule, message, field.value.span)
            return None
        # Of a list property the entry is one element.
        item_type = replace(declared.type, is_list=False, nullable=False)
        operand = self._findings.assigned(field.value, item_type, place)
        if operand is None or variable is None:
            return None
        left = PropertyValue(variable, declared)
        return Contains(left, operand) if declared.type.is_list else Comparison(left, "=", operand)

    # -- traversals ----------------------------------------------------------------------------------

    def _traversal(self, traversal: ast.TraversalSyntax, scope: Scope) -> Clause | None:
        sound = self._check_edge_variable(traversal, scope)
        known = [self._end(end, scope) for end in (traversal.left, traversal.right)]
        if not all(usable for _, usable in known):
            sound = False
        (left, _), (right, _) = known
        hops = self._traverser.hops(traversal, left, right)
        if hops is None or not sound:
            self._poison(traversal, scope)
            return None
        ends = self._traverser.ends(hops)
        self.reads += [hops.edge, *ends]
        left_new, right_new = left is None, right is None
        if left is None:
            left = self._introduce(traversal.left, ends[0], scope)
        if right is None and traversal.right.name in scope and not traversal.right.anonymous:
            # `$a edge $a`: its left end has just been bound.
            right, right_new = scope.find(traversal.right.name), False
            if right is None or right.type.id != ends[1].id:
                message = (
                    f"edge {hops.edge.name} connects {ends[0].name} -> {ends[1].name}, never a node to itself"
                )
                self._findings.report(rules.ENDPOINT, message, traversal.right.span)
                return None
        if right is None:
            right = self._introduce(traversal.right, ends[1], scope)
        edge = None
        if traversal.binding is not None and not traversal.binding.anonymous:
            edge = scope.bind(traversal.binding.name, hops.edge)
        return Expand(left, hops, right, edge, left_new, right_new)

    def _end(self, variable: ast.VarSyntax, scope: Scope) -> tuple[Variable | None, bool]:
        """Return the node that an end is bound to, if any, and whether it can be an end at all."""
        if variable.anonymous:
            return None, True
        if self._is_parameter(variable):
            return None, False
        if variable.name not in scope:
            return None, True
        bound = scope.find(variable.name)
        if bound is not None and bound.is_edge:
            message = f"'${variable.name}' is an edge and cannot be an endpoint"
            self._findings.report(rules.EDGE_BINDING, message, variable.span)
            return None, False
        # One whose type was refused fits anywhere, but nothing can be made of it.
        return bound, bound is not None

    def _check_edge_variable(self, traversal: ast.TraversalSyntax, scope: Scope) -> bool:
        binding = traversal.binding
        if binding is None:
            return True
        if traversal.bounds is not None:
            message = "an edge variable cannot be combined with hop bounds"
        elif binding.anonymous:
            return True
        elif self._is_parameter(binding):
            return False
        elif binding.name in (traversal.left.name, traversal.right.name):
            message = f"'${binding.name}' is also an endpoint of this traversal"
        elif binding.name in scope:
            message = f"'${binding.name}' is already bound"
        else:
            return True
        self._findings.report(rules.EDGE_BINDING, message, binding.span)
        return False

    def _introduce(self, variable: ast.VarSyntax, declared: NodeType, scope: Scope) -> Variable:
        return scope.bind(variable.name, declared, anonymous=variable.anonymous)

    def _poison(self, traversal: ast.TraversalSyntax, scope: Scope) -> None:
        """After a fault, what the traversal would have introduced is known but has no type."""
        for variable in (traversal.left, traversal.binding, traversal.right):
            if variable is not None and not variable.anonymous:
                scope.poison(variable.name)
