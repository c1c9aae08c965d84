"""The surfaces that run the truth table, and the executors that judge it.

Room    tests. A surface turns a step of a case into calls; a new one is one more line in `SURFACES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from omnigraph import Graph
from omnigraph.catalog.model import Property
from omnigraph.catalog.types import Scalar
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.write import ExecutorFor, Receipt
from tests.engine.truth.vocabulary import APPEND, MERGE, OVERWRITE, STATEMENTS, Mode, Put, Record, Run, Step

Act = Callable[[Graph, Step], Receipt]


def load(mode: Any) -> Act:
    """Return how a load in one mode writes rows."""

    def act(graph: Graph, step: Step) -> Receipt:
        assert isinstance(step, Put), "a load has no statements"
        return graph.load(list(step.records), mode=mode, replace_types=step.empty)

    return act


def mutate(graph: Graph, step: Step) -> Receipt:
    """Write rows as one insert for each, or run statements as they are."""
    match step:
        case Put(records):
            text, params = inserts(graph, records)
        case Run(body, given):
            declared = ", ".join(f"${name}: {type_name}" for name, (type_name, _) in given.items())
            text, params = (
                f"query q({declared}) {{ {body} }}",
                {name: value for name, (_, value) in given.items()},
            )
    return graph.mutate(text, params)


def inserts(graph: Graph, records: Sequence[Record]) -> tuple[str, dict[str, Any]]:
    """Return rows as a mutation: values travel as parameters, never as text."""
    catalog = graph.schema.catalog()
    declared: list[str] = []
    lines: list[str] = []
    params: dict[str, Any] = {}
    for number, record in enumerate(records):
        target = catalog.node(record["type"]) if "type" in record else catalog.edge(record["edge"])
        given = {end: record[end] for end in ("from", "to") if end in record} | record["data"]
        for name, value in given.items():
            found = target.find(name)
            declared.append(f"$v{number}_{name}: {'String' if found is None else parameter_type(found)}?")
            params[f"v{number}_{name}"] = value
        lines.append(f"insert {target.name} {{ {', '.join(f'{n}: $v{number}_{n}' for n in given)} }}")
    return f"query q({', '.join(declared)}) {{ {' '.join(lines)} }}", params


def parameter_type(declared: Property) -> str:
    """Return the type of a parameter that holds the values of a property."""
    kind = declared.type
    if kind.scalar is Scalar.VECTOR:
        return f"Vector({kind.dimension})"
    return f"[{kind.scalar.value}]" if kind.is_list else kind.scalar.value


@dataclass(frozen=True)
class Surface:
    """A way to write rows."""

    name: str
    mode: Mode
    act: Act

    def __str__(self) -> str:
        return self.name


SURFACES = (
    Surface("mutation", STATEMENTS, mutate),
    Surface("load-append", APPEND, load("append")),
    Surface("load-merge", MERGE, load("merge")),
    Surface("load-overwrite", OVERWRITE, load("overwrite")),
)

EXECUTORS: dict[str, ExecutorFor] = {
    "chosen": LocalExecutor,
    "datafusion": partial(LocalExecutor, most=-1),
}
