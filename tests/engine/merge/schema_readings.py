"""Schema readings: what every way of reading says about branches and their past, as the model has it.

Room    tests.engine.merge. Heads by entity, baseline and export; two states by diff and by the changes of a
        commit; past states under the names of now. Types and properties are paired by identity.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.history.changes import Change
from tests.engine.merge.schema_model import DST, SRC, Groups, Row, State, Type

Image = dict[str, Any]  # one entity, by name
Told = list[str]  # changes or entities as text, in order


def said(*things: Any) -> str:
    """One change or entity as text that does not depend on the order of names."""
    return json.dumps(things, sort_keys=True)


def image(row_id: str, row: Row, declared: Type, own: dict[int, int]) -> Image:
    """An entity under the names of a declaration; `own` has the numbers of its properties in the row."""
    ends = {"from": row[SRC], "to": row[DST]} if declared.is_edge else {}
    values = {p.name: row[own[p.number]] if p.number in own else None for p in declared.props}
    return {"id": row_id, **ends, **values}


def paired(groups: Groups, old: Type, new: Type) -> dict[int, int]:
    """The properties of one declaration, and what they are in another."""
    before = {groups.of(p.number): p.number for p in old.props}
    return {p.number: before[groups.of(p.number)] for p in new.props if groups.of(p.number) in before}


def is_clear(*states: State) -> bool:
    """Say whether no state has two types or properties that another one has as one."""
    groups = Groups(states)
    for state in states:
        for numbers in (list(state.types), *([p.number for p in t.props] for t in state.types.values())):
            if len({groups.of(number) for number in numbers}) < len(numbers):
                return False
    return True


def differences(old: State, new: State) -> Told:
    """What leads from one state to another."""
    groups = Groups([old, new])
    before, after = ({groups.of(n): t for n, t in state.types.items()} for state in (old, new))
    changes: Told = []
    for group in {*before, *after}:
        was, now = before.get(group), after.get(group)
        declared = now or was
        assert declared is not None
        own = {p.number: p.number for p in declared.props}
        then = {} if was is None else paired(groups, was, declared)
        fills = {p.name: p.default for p in declared.props if p.number not in then}
        older = {} if was is None else _images(old, was, declared, then)
        newer = {} if now is None else _images(new, now, declared, own)
        for row_id in {*older, *newer}:
            first, last = older.get(row_id), newer.get(row_id)
            if first is not None and last is not None and {**first, **fills} == last:
                continue  # what a state lacks counts as its default
            op = "insert" if first is None else "delete" if last is None else "update"
            changes.append(said(op, declared.name, first, last))
    return sorted(changes)


def _images(state: State, own: Type, declared: Type, numbers: dict[int, int]) -> dict[str, Image]:
    return {i: image(i, row, declared, numbers) for i, row in state.rows[own.number].items()}


def entities(state: State, names: State) -> Iterator[tuple[Type, Image]]:
    """The entities of a state under the names of another one, of those types that both have."""
    groups = Groups([state, names])
    there = {groups.of(n): t for n, t in state.types.items()}
    for declared in names.types.values():
        was = there.get(groups.of(declared.number))
        if was is not None:
            for entity in _images(state, was, declared, paired(groups, was, declared)).values():
                yield declared, entity


# -- the engine ----------------------------------------------------------------------------------------


def told(changes: Iterable[Change]) -> Told:
    """Changes as the engine streams them."""
    return sorted(
        said(c.op.value, c.type_name, *(i if i is None else dict(i) for i in (c.before, c.after)))
        for c in changes
    )


def exported(graph: Graph, branch: str) -> Told:
    """What an export of a branch holds, as inserts."""
    records: Told = []
    with tempfile.TemporaryDirectory() as folder:
        graph.export(folder, format="jsonl", branch=branch)
        lines = [line for path in Path(folder).glob("*.jsonl") for line in path.read_text().splitlines()]
    for record in map(json.loads, lines):
        ends = {end: record[end] for end in ("from", "to") if end in record}
        name = record["edge"] if "edge" in record else record["type"]
        records.append(said("insert", name, None, {**record["data"], **ends}))
    return sorted(records)


def check_head(graph: Graph, branch: str, state: State) -> None:
    """Compare the newest state of a branch: entity by entity, as a baseline, as an export."""
    everything = list(entities(state, state))
    inserts = sorted(said("insert", declared.name, None, entity) for declared, entity in everything)
    assert told(graph.changes.baseline(branch=branch)) == inserts
    assert exported(graph, branch) == inserts
    for declared, entity in everything:
        assert graph.entity(declared.name, entity["id"]).get(branch=branch) == entity


def check_way(graph: Graph, a: str, b: str, old: State, new: State) -> None:
    """Compare what leads from one moment to another."""
    if is_clear(old, new):
        assert told(graph.diff(a, b).changes()) == differences(old, new)


def check_past(graph: Graph, commit_id: str, state: State, names: State) -> None:
    """Compare a past state under the names of today, by table, by query and by entity."""
    if not is_clear(state, names):
        return
    groups = Groups([state, names])
    there = {groups.of(number) for number in state.types}
    for declared in names.types.values():
        type_rows = graph.edges if declared.is_edge else graph.nodes
        if groups.of(declared.number) not in there:
            try:
                type_rows(declared.name, at=commit_id).to_arrow()
            except og.GraphError:
                continue
            raise AssertionError(f"{declared.name} was there before it was made")
        wanted = [entity for other, entity in entities(state, names) if other is declared]
        rows = [_plain(row) for row in type_rows(declared.name, at=commit_id).to_arrow().to_pylist()]
        assert sorted(map(said, rows)) == sorted(map(said, wanted)), f"{declared.name} at {commit_id}"
        for entity in wanted:
            assert graph.entity(declared.name, entity["id"]).get(at=commit_id) == entity
        if not declared.is_edge:
            shown = ", ".join(f"$n.{p.name} as {p.name}" for p in declared.props)
            gq = f"query q() {{ match {{ $n: {declared.name} }} return {{ {shown} }} }}"
            rows = [{"id": row["k"], **row} for row in graph.query(gq, at=commit_id).rows]
            assert sorted(map(said, rows)) == sorted(map(said, wanted)), f"{declared.name} at {commit_id}"


def _plain(row: Image) -> Image:
    return {{"src": "from", "dst": "to"}.get(name, name): value for name, value in row.items()}
