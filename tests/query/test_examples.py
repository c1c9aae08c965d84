"""The example projects: every query checks; every read runs on the seed data and answers rightly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import GraphError
from omnigraph.catalog.model import StoredType
from omnigraph.catalog.query import CheckedQuery, bind_params, check
from omnigraph.catalog.query.expressions import Comparison, Contains, Nearest, ParamRef, PropertyValue, Rrf
from omnigraph.catalog.query.statements import Bind, CheckedRead, Clause, Counted, Exists, Filter, Optional
from omnigraph.catalog.types import Scalar
from omnigraph.language.query import parse_query
from tests.query.plain import PlainGraph, Thing
from tests.query.reference import answer
from tests.query.test_differential import alike

EXAMPLES = Path(__file__).resolve().parents[3] / "shared" / "examples"  # beside the project
PROJECTS = sorted(path.parent for path in EXAMPLES.glob("*/schema.pg"))
SAMPLES = 4  # values tried for a parameter
MADE_UP: dict[Scalar, list[Any]] = {
    Scalar.STRING: ["model", "zzz"],
    Scalar.DATETIME: ["2025-06-01T00:00:00Z", "1990-01-01T00:00:00Z"],
    Scalar.DATE: ["2025-06-01", "1990-01-01"],
    Scalar.I32: [1, 3],
}
pytestmark = pytest.mark.skipif(not PROJECTS, reason="the example projects are not on this machine")


@pytest.fixture(scope="module", params=PROJECTS, ids=lambda path: path.name)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project's graph, loaded with its seed data."""
    folder: Path = request.param
    graph = og.init(tmp_path_factory.mktemp("example") / "g.og", folder / "schema.pg", durability="os")
    with graph:
        graph.load(folder / "seed.jsonl", mode="overwrite")
        yield Project(folder, graph)


class Project:
    """An open example: its reads, and its data as a plain graph."""

    def __init__(self, folder: Path, graph: Graph) -> None:
        self.folder = folder
        self.graph = graph
        catalog = graph.schema.catalog("main")
        nodes = {t.name: _things(t, graph.nodes(t.name).to_arrow()) for t in catalog.nodes}
        edges = {t.name: _things(t, graph.edges(t.name).to_arrow()) for t in catalog.edges}
        self.plain = PlainGraph(nodes, edges)

    def queries(self) -> Iterator[tuple[Path, CheckedQuery]]:
        """Yield every query, checked, with its file."""
        catalog = self.graph.schema.catalog("main")
        for file in sorted(self.folder.glob("**/*.gq")):
            parsed = parse_query(file.read_text("utf-8"), file=file.name)
            for query in parsed.queries:
                yield file, check(query, parsed.source, catalog)

    def reads(self) -> Iterator[tuple[Path, CheckedRead]]:
        """Yield the reads."""
        return ((file, query) for file, query in self.queries() if isinstance(query, CheckedRead))

    def requests(self, read: CheckedRead) -> list[dict[str, Any]]:
        """Return values for the parameters: what the data holds where they are compared, else made up."""
        compared = dict(_compared(read.clauses))
        choices = {}
        for parameter in read.parameters:
            kind, member = compared.get(parameter.name, ("", ""))
            held = {thing.values[member] for thing in self.plain.nodes.get(kind, ())} if member else set()
            texts = sorted(value for value in held if isinstance(value, str))
            choices[parameter.name] = texts[:: max(1, len(texts) // SAMPLES)] + MADE_UP[parameter.type.scalar]
        rounds = max((len(values) for values in choices.values()), default=1)
        return [{name: values[n % len(values)] for name, values in choices.items()} for n in range(rounds)]


def _things(kind: StoredType, table: pa.Table) -> list[Thing]:
    """Return rows with stored values: days and milliseconds for times, tuples for lists."""
    for place, column in enumerate(table.schema):
        if pa.types.is_temporal(column.type):
            number = pa.int32() if column.type == pa.date32() else pa.int64()
            table = table.set_column(place, column.name, table.column(place).cast(number))
    return [
        Thing(
            kind.name,
            row["id"],
            {p.name: tuple(v) if isinstance(v := row[p.name], list) else v for p in kind.properties},
            row.get("src", ""),
            row.get("dst", ""),
        )
        for row in table.to_pylist()
    ]


def _compared(clauses: tuple[Clause, ...]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the parameters that are compared with a property: name, type and property."""
    for clause in clauses:
        match clause:
            case Bind(_, conditions):
                tested = list(conditions)
            case Filter(condition):
                tested = [condition]
            case Exists(block) | Counted(block) | Optional(block):
                yield from _compared(block.clauses)
                continue
            case _:
                continue
        for condition in tested:
            match condition:
                case Comparison(PropertyValue(variable, member), _, ParamRef(parameter)) | Contains(
                    PropertyValue(variable, member), ParamRef(parameter)
                ):
                    yield parameter.name, (variable.type.name, member.name)


# -- promises ----------------------------------------------------------------------------------------


def test_every_query_checks(project: Project) -> None:
    assert len(list(project.queries())) > 50


def test_every_read_runs_and_answers_as_the_reference(project: Project) -> None:
    answered = compared = 0
    for file, read in project.reads():
        for params in project.requests(read):
            if _embeds(read):
                with pytest.raises(GraphError, match="embedder"):
                    project.graph.query(file, params, query_name=read.name)
                continue
            result = project.graph.query(file, params, query_name=read.name)
            assert result.columns == tuple(column.name for column in read.columns)
            answered += bool(len(result))
            try:
                expected = answer(read, project.plain, bind_params(read.parameters, params))
            except NotImplementedError:
                continue  # text search
            compared += bool(expected)
            found = [list(row.values()) for row in result.json_rows()]
            assert alike(expected, found), (read.name, params, expected, found)
    assert answered > 50
    assert compared > 50


def _embeds(read: CheckedRead) -> bool:
    """Say whether a read turns text into a vector, for which an embedder must be configured."""
    match read.ranking:
        case Nearest() as one:
            return one.embeds
        case Rrf(first, second):
            return any(isinstance(arm, Nearest) and arm.embeds for arm in (first, second))
        case _:
            return False
