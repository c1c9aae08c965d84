"""Evaluate: whether a change is allowed, by every constraint that it touches.

    change -> values judged row by row -> questions about sets of rows -> **findings in the order of report**

Mutation, load, merge, Spark and schema apply all end here, so that a constraint holds on every surface or on
none. What one row can break by itself is in values.py. What rows can break together is a question: a relation
that must be empty (relation.py), made from catalog and change alone, and answered by an executor
(executors.py, and Spark's). Only what the change touches is asked about. The tables that a question reads are
part of the publish plan: if one moves before the write is published, the question is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.cancellation import stoppable
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import KeyConflict
from omnigraph.base.times import write_day, write_instant
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ENDPOINTS, ID, Cardinality, EdgeType, TableType, Unique
from omnigraph.catalog.types import Scalar
from omnigraph.engine.change import ChangeSet, TypeChange
from omnigraph.engine.validate.relation import (
    NO_FINDINGS,
    SHOWN,
    STORED,
    Anti,
    Executor,
    Findings,
    Join,
    Outside,
    Pick,
    Read,
    Relation,
    RelationSide,
    Semi,
    Shared,
    Union,
    Violation,
    reads,
)
from omnigraph.engine.validate.values import CODES, shown, value_findings

SOURCE, TARGET = ENDPOINTS
_TEXTS = {Scalar.DATE: write_day, Scalar.DATETIME: write_instant}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """A relation that must be empty, and what each of its rows means."""

    relation: Relation
    order: tuple[str, ...]
    means: Callable[[Row], Violation]


@dataclass(frozen=True, eq=False)
class Asked:
    """The questions of a change, and the tables whose stored rows decide whether it is allowed."""

    questions: tuple[Question, ...] = ()
    consulted: frozenset[str] = frozenset()


ASKED = 256  # sorts of changes whose questions are kept
_asked = BoundedCache[tuple[Any, ...], Asked](ASKED)


def asked_of(change: ChangeSet) -> Asked:
    """Return the questions of a change under its own catalog.

    They depend on the schema and on the sort of the change, never on its rows: a program that repeats a
    statement asks the same questions each time.
    """
    key = (
        change.catalog.identity,
        *[
            (
                *(table_id, type(part), part.given is None, part.count > 0, len(part.removed) > 0),
                *(part.replaces, part.strict, part.minted),
            )
            for table_id, part in change.types.items()
        ],
    )
    known = _asked.get(key)
    if known is None:
        asking = tuple(questions(change))
        known = _asked.put(key, Asked(asking, consulted(asking)))
    return known


def questions(change: ChangeSet) -> Iterator[Question]:
    """Ask everything that the constraints ask of a change, in the order of report."""
    for type_change in change.types.values():
        yield from _strict(type_change)
    for type_change in change.types.values():
        yield from _uniques(type_change)
    for edge in change.edges:
        yield from _endpoints(change, edge)
    for edge in change.edges:
        yield from _cardinality(change, edge)


def questions_of_stored(
    declared: TableType, constraints: Iterable[Unique | Cardinality]
) -> Iterator[Question]:
    """Ask what constraints ask of all stored rows of a type, as if they were written now."""
    for constraint in constraints:
        if isinstance(constraint, Unique):
            yield _within(declared, constraint, RelationSide.COMMITTED)
        elif isinstance(declared, EdgeType):
            edges = _edges(RelationSide.COMMITTED, declared)
            yield _counted(declared, Pick(edges, ("source",)), edges)


def question_of_ids(declared: TableType) -> Question:
    """Ask whether two stored rows of a type have one id."""
    twice = Shared(_ids(RelationSide.COMMITTED, declared), (ID,), ID)
    return Question(twice, (ID,), lambda row: _key_conflict(declared, row[ID], f"is stored {row['n']} times"))


def questions_of_ends(catalog: Catalog, edge: EdgeType) -> Iterator[Question]:
    """Ask whether the ends of all stored edges of a type are there."""
    ends = {SOURCE: edge.source, TARGET: edge.target}
    for node_id in dict.fromkeys(ends.values()):
        sides = tuple(side for side, target in ends.items() if target == node_id)
        named = _named_by(RelationSide.COMMITTED, edge, sides)
        lost = Anti(named, _nodes(RelationSide.COMMITTED, node_id), ("node",))
        yield _question_of_orphans(edge, catalog.table(node_id).name, lost)


# -- ids ---------------------------------------------------------------------------------------------


def _strict(change: TypeChange) -> Iterator[Question]:
    """Strict inserts: every id is new, and stands in the input once."""
    declared = change.declared
    if change.minted or not (change.strict or change.replaces):
        return
    if change.as_given and not declared.key:
        twice = Shared(_ids(RelationSide.GIVEN, declared), (ID,), ID)
        yield Question(
            twice, (ID,), lambda row: _key_conflict(declared, row[ID], "stands in the input twice")
        )
    if change.strict:
        there = Semi(_ids(RelationSide.CHANGED, declared), _ids(RelationSide.COMMITTED, declared), (ID,))
        yield Question(there, (ID,), lambda row: _key_conflict(declared, row[ID], "exists already"))


def _key_conflict(declared: TableType, row_id: str, why: str) -> Violation:
    message = f"{declared.kind.value} {row_id!r} of type {declared.name} {why}"
    return Violation("key_conflict", declared.kind.value, declared.name, message, row_id)


# -- unique ------------------------------------------------------------------------------------------


def _uniques(change: TypeChange) -> Iterator[Question]:
    declared = change.declared
    if not change.count:
        return
    side = RelationSide.GIVEN if change.as_given else RelationSide.CHANGED
    if side is RelationSide.GIVEN and declared.key and not change.minted:
        names = ", ".join(member.name for member in declared.key_members)
        yield Question(
            Shared(_ids(side, declared), (ID,), ID), (ID,), lambda row: _same_key(declared, names, row[ID])
        )
    for constraint in declared.constraints:
        if isinstance(constraint, Unique) and not declared.is_key(constraint):
            yield _within(declared, constraint, side)
            if not change.replaces:
                yield _against_committed(declared, constraint)


def _same_key(declared: TableType, names: str, row_id: str) -> Violation:
    message = f"@unique violation on {declared.name}.{names}: key {row_id!r} stands in the input twice"
    return Violation("unique", declared.kind.value, declared.name, message, row_id, names, shown(row_id))


def _within(declared: TableType, constraint: Unique, side: RelationSide) -> Question:
    members = _members(declared, constraint)
    every = Read(side, declared.table_id, ((ID, ID), *members), complete=True)
    keys = tuple(name for name, _ in members)
    return Question(
        Shared(every, keys, ID),
        ("least", *keys),
        lambda row: _held(declared, constraint, row, row["least"], row["greatest"]),
    )


def _against_committed(declared: TableType, constraint: Unique) -> Question:
    """The holder is ignored if the change rewrites or removes it."""
    members = _members(declared, constraint)
    keys = tuple(name for name, _ in members)
    mine = Read(RelationSide.CHANGED, declared.table_id, ((ID, ID), *members), complete=True)
    stored = Read(RelationSide.COMMITTED, declared.table_id, (("holder", ID), *members))
    hits: Relation = Join(mine, stored, keys)
    for side in (RelationSide.CHANGED, RelationSide.REMOVED):
        hits = Anti(hits, Read(side, declared.table_id, (("holder", ID),)), ("holder",))
    return Question(
        hits, (ID, *keys, "holder"), lambda row: _held(declared, constraint, row, row[ID], row["holder"])
    )


def _members(declared: TableType, constraint: Unique) -> tuple[tuple[str, str], ...]:
    return tuple((f"k{n}", declared.column_of(p)) for n, p in enumerate(constraint.properties))


def _held(declared: TableType, constraint: Unique, row: Row, mine: str, other: str) -> Violation:
    names = [declared.name_of(p) for p in constraint.properties]
    values = [_shown(declared, p, row[f"k{n}"]) for n, p in enumerate(constraint.properties)]
    if len(names) == 1:
        subject, value = f"{declared.name}.{names[0]}", values[0]
    else:
        subject = f"{declared.name}.({', '.join(names)})"
        value = f"({', '.join(values)})"
    message = f"@unique violation on {subject}: value {value} held by {mine!r} and {other!r}"
    return Violation("unique", declared.kind.value, declared.name, message, mine, ", ".join(names), value)


def _shown(declared: TableType, member: str, value: Any) -> str:
    """Return a value as people write it: days and instants come as numbers."""
    write = None if member in ENDPOINTS else _TEXTS.get(declared.property_by_id(member).type.scalar)
    return shown(value if write is None else write(value))


# -- endpoints ---------------------------------------------------------------------------------------


def _endpoints(change: ChangeSet, edge: EdgeType) -> Iterator[Question]:
    """Edges written must find their nodes; edges that stay must not lose theirs."""
    ends = {SOURCE: edge.source, TARGET: edge.target}
    mine = change.types.get(edge.id)
    for node_id in dict.fromkeys(ends.values()):
        sides = tuple(side for side, target in ends.items() if target == node_id)
        node_name = change.catalog.table(node_id).name
        if mine is not None and mine.count:
            yield _question_of_orphans(edge, node_name, _missing(change, edge, node_id, sides))
        if change.loses_rows(node_id) and not (mine is not None and mine.replaces):
            yield _question_of_orphans(edge, node_name, _abandoned(change, edge, node_id, sides))


def _question_of_orphans(edge: EdgeType, node: str, relation: Relation) -> Question:
    def means(row: Row) -> Violation:
        message = f"{row['side']} {row['node']!r} not found in {node} (edge {edge.name} {row['edge']!r})"
        return Violation(
            "orphan_edge", "edge", edge.name, message, row["edge"], row["side"], shown(row["node"])
        )

    return Question(relation, ("edge", "side", "node"), means)


def _missing(change: ChangeSet, edge: EdgeType, node_id: str, sides: tuple[str, ...]) -> Relation:
    """Written edges whose node is neither written nor stored, or is being removed."""
    named = _named_by(RelationSide.CHANGED, edge, sides)
    node = change.types.get(node_id)
    without: Relation = named
    if node is not None and node.count:
        without = Anti(named, _nodes(RelationSide.CHANGED, node_id), ("node",))
    if node is not None and node.replaces:
        return without
    unknown = Anti(without, _nodes(RelationSide.COMMITTED, node_id), ("node",))
    if node is None or not len(node.removed):
        return unknown
    gone = _nodes(RelationSide.REMOVED, node_id)  # and perhaps not stored either, in the image of a merge
    return Union((Anti(unknown, gone, ("node",)), Semi(without, gone, ("node",))))


def _named_by(of: RelationSide, edge: EdgeType, sides: tuple[str, ...]) -> Relation:
    """The nodes at some ends of edges."""
    return Union(
        tuple(Read(of, edge.id, (("edge", ID), ("node", side)), label=(("side", side),)) for side in sides)
    )


def _abandoned(change: ChangeSet, edge: EdgeType, node_id: str, sides: tuple[str, ...]) -> Relation:
    """Stored edges that stay and name a node that goes."""
    gone = _leaving_nodes(change, node_id, "node")
    left: Relation = Union(
        tuple(
            Join(
                gone,
                Read(
                    RelationSide.COMMITTED, edge.id, (("edge", ID), ("node", side)), label=(("side", side),)
                ),
                ("node",),
            )
            for side in sides
        )
    )
    return _staying(change, edge, left)


def _staying(change: ChangeSet, edge: EdgeType, edges: Relation) -> Relation:
    """Leave out stored edges that the change rewrites or removes."""
    mine = change.types.get(edge.id)
    if mine is None:
        return edges
    for side in (RelationSide.CHANGED, RelationSide.REMOVED):
        edges = Anti(edges, Read(side, edge.id, (("edge", ID),)), ("edge",))
    return edges


def _leaving_nodes(change: ChangeSet, node_id: str, name: str) -> Relation:
    def nodes(side: RelationSide) -> Read:
        return Read(side, node_id, ((name, ID),))

    if not change.types[node_id].replaces:
        return nodes(RelationSide.REMOVED)
    return Anti(nodes(RelationSide.BEFORE), nodes(RelationSide.CHANGED), (name,))


# -- cardinality -------------------------------------------------------------------------------------


def _cardinality(change: ChangeSet, edge: EdgeType) -> Iterator[Question]:
    mine = change.types.get(edge.id)
    if edge.card.unlimited or mine is None:
        return
    touched: Relation = Pick(Union(tuple(_touched(mine, edge))), ("source",))
    if change.loses_rows(edge.source):
        touched = Anti(touched, _leaving_nodes(change, edge.source, "source"), ("source",))
    written = Semi(_edges(RelationSide.CHANGED, edge), touched, ("source",))
    if mine.replaces:
        final: Relation = written
    else:
        stored = _staying(change, edge, Join(touched, _edges(RelationSide.COMMITTED, edge), ("source",)))
        final = Union((written, Pick(stored, ("edge", "source"))))

    yield _counted(edge, touched, final)


def _counted(edge: EdgeType, sources: Relation, edges: Relation) -> Question:
    """Ask whether each source has as many of the edges as the type allows."""
    card = edge.card

    def means(row: Row) -> Violation:
        limit = f"min {card.low}" if row["n"] < card.low else f"max {card.high}"
        message = (
            f"@card violation on edge {edge.name}: source {row['source']!r} has {row['n']} edges ({limit})"
        )
        return Violation("cardinality", "edge", edge.name, message, row["source"], SOURCE, str(row["n"]))

    return Question(Outside(sources, edges, "source", card.low, card.high), ("source",), means)


def _touched(mine: TypeChange, edge: EdgeType) -> Iterator[Relation]:
    """The new source of each edge written, and the old one of each edge rewritten or removed."""
    yield Pick(_edges(RelationSide.CHANGED, edge), ("source",))
    before = _edges(RelationSide.BEFORE, edge)
    if mine.replaces:
        yield Pick(before, ("source",))
        return
    if mine.count and not mine.minted:
        yield Pick(Join(Read(RelationSide.CHANGED, edge.id, (("edge", ID),)), before, ("edge",)), ("source",))
    if len(mine.removed):
        yield Pick(Join(Read(RelationSide.REMOVED, edge.id, (("edge", ID),)), before, ("edge",)), ("source",))


def _edges(side: RelationSide, edge: EdgeType) -> Read:
    return Read(side, edge.id, (("edge", ID), ("source", SOURCE)))


def _nodes(side: RelationSide, node_id: str) -> Read:
    return Read(side, node_id, (("node", ID),))


def _ids(side: RelationSide, declared: TableType) -> Read:
    return Read(side, declared.table_id, ((ID, ID),))


# -- judging ---------------------------------------------------------------------------------------


KEY_CONFLICT = "key_conflict"
ORDER = (*CODES, KEY_CONFLICT, "unique", "orphan_edge", "cardinality")  # of report (engine contract E-13)


def consulted(asking: Iterable[Question]) -> frozenset[str]:
    """Return the tables whose stored rows decide whether a change is allowed."""
    by_question = (reads(question.relation) for question in asking)
    return frozenset(read.table for sources in by_question for read in sources if read.side in STORED)


def judge_values(change: ChangeSet) -> Findings:
    """Judge each row by itself."""
    parts = [
        value_findings(batch, type_change.declared)
        for type_change in change.types.values()
        for batch in type_change.rows.to_batches()
    ]
    return in_order(parts) if any(part.total for part in parts) else NO_FINDINGS


def judge_sets(asking: Iterable[Question], executor: Executor) -> Findings:
    """Judge the rows together, and against what is stored."""
    parts = []
    for question in stoppable(asking):
        answer = executor.ask(question.relation, question.order, SHOWN)
        if answer.total:
            parts.append(Findings.of([question.means(row) for row in answer.rows], answer.total))
    return in_order(parts) if parts else NO_FINDINGS


def in_order(parts: Iterable[Findings]) -> Findings:
    """Put findings together: by code, nodes before edges, by type and id. Each part has its first ones."""
    first: list[Violation] = []
    total = 0
    for part in parts:
        total += part.total
        if part.violations:
            first = sorted((*first, *part.violations), key=_report_order)[:SHOWN]
    return Findings.of(first, total)


def _report_order(violation: Violation) -> tuple[int, bool, str, str]:
    kind, name = violation.entity_kind == "edge", violation.type_name
    return ORDER.index(violation.code), kind, name, violation.entity_id or ""


def refuse(findings: Findings, doing: str) -> None:
    """Raise what was found, if anything: an id that exists is a conflict, the rest are violations."""
    conflicts = [violation for violation in findings.violations if violation.code == KEY_CONFLICT]
    if conflicts and len(conflicts) == len(findings.violations):
        first = conflicts[0]
        more = f" (and {findings.total - 1} more)" if findings.total > 1 else ""
        raise KeyConflict(
            f"{doing}: {first.text}{more}",
            remedy="Nothing was written; use mode merge to replace entities that exist",
            entity_kind=first.entity_kind,
            type_name=first.type_name,
            entity_id=first.entity_id,
            total=findings.total,
        )
    findings.refuse(doing)
