"""Check mutation: resolve the statements of a mutation against a catalog.

    tree -> **checked mutation**

Reports T3, T7 and T10 to T16, and Q207 and Q208, which have no T number.

`where` compares a property with a literal, a parameter or now(), tests membership or null, and joins such
tests with and, or, not( ); it has no `contains` and no arithmetic. Testing a list or a vector for null is
legal, since nothing in it is compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import END_NAMES, ID, EdgeType, NodeType, Property, TableType
from omnigraph.catalog.query.check.scope import QueryFindings, is_plain, same_family
from omnigraph.catalog.query.expressions import (
    Among,
    Comparison,
    Condition,
    EntityField,
    EntityPart,
    IsNull,
    Not,
    PropertyValue,
    Variable,
    all_of,
    any_of,
)
from omnigraph.catalog.query.statements import (
    Assignment,
    CheckedMutation,
    Delete,
    Endpoint,
    Insert,
    Operation,
    Place,
    Statement,
    Update,
    endpoints,
    in_order,
    place_name,
    touching,
)
from omnigraph.catalog.query.values import constant
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.language.diagnostics import Diagnostic, did_you_mean
from omnigraph.language.literals import LiteralSyntax
from omnigraph.language.query import rules
from omnigraph.language.query import tree as ast
from omnigraph.language.syntax import Ident


def check_mutation(
    query: ast.QuerySyntax, body: ast.WriteSyntax, catalog: Catalog
) -> tuple[CheckedMutation | None, list[Diagnostic]]:
    """Return the checked mutation, or None and everything that is wrong with it."""
    findings = QueryFindings(query, catalog)
    checker = _Checker(findings)
    statements = tuple(checker.statement(statement) for statement in body.statements)
    _refuse_mixture(query, body, findings)
    if findings.diagnostics:
        return None, findings.diagnostics
    sound = tuple(s for s in statements if s is not None)
    checked = CheckedMutation(
        query.name.text,
        findings.declared,
        sound,
        _operation(sound, catalog),
        query.note("description"),
        query.note("instruction"),
    )
    return checked, []


def _refuse_mixture(query: ast.QuerySyntax, body: ast.WriteSyntax, findings: QueryFindings) -> None:
    deletes = [isinstance(statement, ast.DeleteSyntax) for statement in body.statements]
    if any(deletes) and not all(deletes):
        message = (
            f"mutation '{query.name.text}' on the same query mixes inserts/updates and deletes; "
            "split into separate mutations"
        )
        odd = next(s for s, d in zip(body.statements, deletes, strict=True) if d != deletes[0])
        findings.report(rules.MIXED_MUTATION, message, odd.span)


def _operation(statements: Sequence[Statement], catalog: Catalog) -> Operation:
    reads: list[TableType] = []
    writes: list[TableType] = []
    for statement in statements:
        target = statement.target
        touched: list[TableType] = [target]
        if isinstance(statement, Insert) and isinstance(target, EdgeType):
            reads.extend(endpoints(target, catalog))
        if isinstance(statement, Delete) and isinstance(target, NodeType):
            touched.extend(touching(target, catalog))
        reads.extend(touched)
        writes.extend(touched)
    return Operation((), in_order(reads), in_order(writes))


class _Checker:
    def __init__(self, findings: QueryFindings) -> None:
        self._findings = findings
        self._catalog = findings.catalog

    def statement(self, statement: ast.StatementSyntax) -> Statement | None:
        target = self._target(statement.type)
        if target is None:
            self._check_variables(statement)
            return None
        match statement:
            case ast.InsertSyntax():
                assignments = self._assignments(target, statement.fields, update=False)
                self._require(target, statement)
                return Insert(target, assignments)
            case ast.UpdateSyntax():
                assignments = self._assignments(target, statement.fields, update=True)
                where = self._where(statement.where, target)
                return None if where is None else Update(target, assignments, where)
            case ast.DeleteSyntax():
                where = self._where(statement.where, target)
                return None if where is None else Delete(target, where)

    def _target(self, name: Ident) -> TableType | None:
        node = self._catalog.find_node(name.text)
        if node is not None:
            return node
        edge = self._catalog.find_edge(name.text)
        if edge is not None and edge.name == name.text:
            return edge
        message = f"'{name.text}' is neither a node nor an edge type"
        if self._catalog.find_interface(name.text) is not None:
            self._findings.report(
                rules.UNKNOWN_TARGET, f"{message}: it is an interface", name.span, "name a node type"
            )
        else:
            known = (t.name for t in self._catalog.tables)
            self._findings.unknown(rules.UNKNOWN_TARGET, message, name.span, name.text, known)
        return None

    def _check_variables(self, statement: ast.StatementSyntax) -> None:
        """Without a type only the parameters can be checked."""
        for field in () if isinstance(statement, ast.DeleteSyntax) else statement.fields:
            if isinstance(field.value, ast.VarSyntax):
                self._findings.parameter(field.value)

    # -- assignments ---------------------------------------------------------------------------------

    def _assignments(
        self, target: TableType, fields: Sequence[ast.FieldSyntax], *, update: bool
    ) -> tuple[Assignment, ...]:
        assignments: list[Assignment] = []
        seen: set[str] = set()
        for field in fields:
            name = field.name.text
            if name in seen:
                message = f"property '{name}' is assigned twice"
                self._findings.report(rules.ASSIGNED_TWICE, message, field.name.span)
            seen.add(name)
            place = self._place(field.name, target)
            if place is None:
                if isinstance(field.value, ast.VarSyntax):
                    self._findings.parameter(field.value)
                continue
            if update:
                self._refuse_fixed(place, target, field.name)
            operand = self._findings.assigned(field.value, place.type, f"{target.name}.{name}")
            if operand is not None:
                assignments.append(Assignment(place, operand))
        return tuple(assignments)

    def _place(self, name: Ident, target: TableType) -> Place | None:
        """Return the property or endpoint of a name; anything else is T11."""
        if isinstance(target, EdgeType) and name.text in ("from", "to"):
            return Endpoint(name.text)
        declared = target.find(name.text)
        if declared is not None:
            return declared
        message = f"{target.kind.value} type {target.name} has no property '{name.text}'"
        hint = did_you_mean(name.text, (p.name for p in target.properties))
        if name.text == ID:
            message, hint = "the id of an entity can be neither assigned nor tested", _key_hint(target)
        elif isinstance(target, EdgeType) and name.text in ("src", "dst"):
            hint = f"write '{'from' if name.text == 'src' else 'to'}'"
        self._findings.report(rules.UNKNOWN_ASSIGNED, message, name.span, hint)
        return None

    def _refuse_fixed(self, place: Place, target: TableType, name: Ident) -> None:
        if isinstance(place, Endpoint):
            message = f"the endpoints of an edge are fixed: '{place.value}' cannot be updated"
            self._findings.report(rules.EDGE_UPDATE, message, name.span, "delete the edge and insert another")
        elif place.id in target.key:
            message = f"cannot update @key property '{place.name}'"
            hint = f"delete the {target.kind.value} and insert another"
            self._findings.report(rules.KEY_UPDATE, message, name.span, hint)

    def _require(self, target: TableType, statement: ast.InsertSyntax) -> None:
        assigned = {field.name.text for field in statement.fields}
        needed: list[str] = []
        if isinstance(target, EdgeType):
            needed += [end.value for end in Endpoint]
        needed += [p.name for p in target.properties if _must_be_given(p, target, assigned)]
        missing = [name for name in needed if name not in assigned]
        if missing:
            names = ", ".join(f"'{name}'" for name in missing)
            noun = "property" if len(missing) == 1 else "properties"
            message = f"insert {target.name} lacks the required {noun} {names}"
            self._findings.report(rules.REQUIRED, message, statement.type.span)

    # -- conditions ----------------------------------------------------------------------------------

    def _where(self, condition: ast.ConditionSyntax, target: TableType) -> Condition | None:
        match condition:
            case ast.AndSyntax(operands) | ast.OrSyntax(operands):
                parts = [self._where(operand, target) for operand in operands]
                sound = tuple(part for part in parts if part is not None)
                if len(sound) != len(parts):
                    return None
                return all_of(sound) if isinstance(condition, ast.AndSyntax) else any_of(sound)
            case ast.NotSyntax(operand):
                inner = self._where(operand, target)
                return None if inner is None else Not(inner)
            case ast.CompareSyntax(ast.NameSyntax(name), operator, right):
                return self._test(name, operator, _value(right), target)
            case ast.MemberSyntax(ast.NameSyntax(name), right):
                return self._member(name, _value(right), target)
            case ast.NullTestSyntax(ast.NameSyntax(name), negated):
                place = self._tested(name, target)
                return None if place is None else IsNull(_of_row(place, target), negated)
            case _:
                raise TypeError(f"the grammar gave {condition!r} in 'where'")

    def _tested(self, name: Ident, target: TableType) -> Place | None:
        place = self._place(name, target)
        if place is not None and place.type.scalar is Scalar.BLOB:
            message = f"{target.name}.{name.text} is a Blob and cannot be tested"
            self._findings.report(rules.UNKNOWN_ASSIGNED, message, name.span)
            return None
        return place

    def _compared(self, name: Ident, target: TableType) -> Place | None:
        place = self._tested(name, target)
        if place is not None and not is_plain(place.type):
            message = f"{target.name}.{name.text} is {place.type} and cannot be compared"
            self._findings.report(rules.INCOMPATIBLE, message, name.span)
            return None
        return place

    def _test(
        self, name: Ident, operator: str, value: ast.ValueSyntax, target: TableType
    ) -> Condition | None:
        place = self._compared(name, target)
        if place is None:
            if isinstance(value, ast.VarSyntax):
                self._findings.parameter(value)
            return None
        operand = self._findings.compared(value, place.type, f"{target.name}.{place_name(place)}")
        return None if operand is None else Comparison(_of_row(place, target), operator, operand)

    def _member(self, name: Ident, value: ast.ValueSyntax, target: TableType) -> Condition | None:
        place = self._compared(name, target)
        match value:
            case ast.ListSyntax(items):
                constants = tuple(constant(item) for item in items)
                list_type = constant(value).type
                fits = place is not None and (not items or self._listed(list_type, place, value))
                return Among(_of_row(place, target), constants) if place is not None and fits else None
            case ast.VarSyntax():
                reference = self._findings.parameter(value)
                if place is None or reference is None:
                    return None
                if reference.type.is_list:
                    fits = self._listed(reference.type, place, value)
                    return Among(_of_row(place, target), reference) if fits else None
            case _:
                pass
        message = "'in' takes a list: [literal, ...] or a parameter that holds one"
        self._findings.report(rules.INCOMPATIBLE, message, value.span)
        return None

    def _listed(self, list_type: PropertyType, place: Place, value: ast.ValueSyntax) -> bool:
        fits = same_family(list_type.scalar, place.type.scalar)
        if not fits:
            subject = f"{place_name(place)}, which is {place.type}"
            message = f"cannot compare {subject}, with the values of {list_type}"
            self._findings.report(rules.INCOMPATIBLE, message, value.span)
        return fits


def _of_row(place: Place, target: TableType) -> PropertyValue | EntityField:
    """Return what a condition tests, as a value of the row that it is asked of."""
    row = Variable(0, "", target, anonymous=True)
    if isinstance(place, Property):
        return PropertyValue(row, place)
    return EntityField(row, EntityPart.SRC if place is Endpoint.FROM else EntityPart.DST)


def _value(expression: ast.ExprSyntax) -> ast.ValueSyntax:
    if not isinstance(expression, LiteralSyntax | ast.ListSyntax | ast.VarSyntax | ast.NowSyntax):
        raise TypeError(f"the grammar gave {expression!r} in 'where'")
    return expression


def _must_be_given(declared: Property, target: TableType, assigned: set[str]) -> bool:
    if declared.type.nullable or declared.default is not None:
        return False
    # A vector may be made from its source before the row is stored.
    return declared.embed is None or target.property_by_id(declared.embed.source).name not in assigned


def _key_hint(target: TableType) -> str | None:
    if not target.key:
        return None
    names = ", ".join(f"'{END_NAMES.get(member.column, member.name)}'" for member in target.key_members)
    return f"the id follows from the key: use {names}"
