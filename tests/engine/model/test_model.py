"""Random schemas, random loads and mutations: the engine and a plain model agree on images and refusals."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation, KeyConflict
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.write import Receipt
from omnigraph.storage.store import GraphStore
from tests.engine.model import drive
from tests.engine.model.model import (
    NEW,
    Delete,
    Done,
    Image,
    Insert,
    Load,
    Model,
    Record,
    Refused,
    Row,
    Statement,
    Test,
    Update,
    Where,
)
from tests.engine.model.schemas import BAD, GOOD, Kind, Prop, Schema, schemas

Test.__test__ = False  # type: ignore[attr-defined]
OWN_IDS = ["x", "y", "z'"]


# -- writes ------------------------------------------------------------------------------------------


@st.composite
def value(draw: st.DrawFn, prop: Prop, *, wild: bool) -> Any:
    """Return a value of a property; sometimes null, and if `wild` sometimes one that breaks a rule."""
    pool = list(GOOD[prop.kind])
    if prop.nullable:
        pool += [None, None]
    if wild:
        pool += [None, BAD[prop.kind][1]] if prop.kind in BAD else [None]
    return draw(st.sampled_from(pool))


@st.composite
def row(draw: st.DrawFn, kind: Kind, image: Image, *, wild: bool) -> Row:
    """Return a row: edges mostly between nodes that are there."""
    found: dict[str, Any] = {}
    if kind.ends is not None:
        for end, target in zip(("src", "dst"), kind.ends, strict=True):
            there = sorted(image[target])
            found[end] = draw(st.sampled_from([*there * 4, "ghost"]))
    for prop in kind.props:
        found[prop.name] = draw(value(prop, wild=wild and prop.name not in kind.key))
    return found


@st.composite
def loads(draw: st.DrawFn, schema: Schema, image: Image) -> Load:
    """Return a load of a few records."""
    wild = draw(st.integers(0, 4)) == 0
    records = []
    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 2, 3, 5]))):
        kind = draw(st.sampled_from(schema.kinds))
        found = dict(draw(row(kind, image, wild=wild)))
        if not kind.key and draw(st.booleans()):
            found["id"] = draw(st.sampled_from([*sorted(image[kind.name]), *OWN_IDS]))
        wrong = draw(st.sampled_from([None] * 8 + ["unknown_property", "type"])) if wild else None
        records.append(Record(kind, found, wrong if kind.props or wrong != "type" else None))
    mode = draw(st.sampled_from(["append", "merge", "merge", "overwrite"]))
    names = st.sampled_from([kind.name for kind in schema.kinds])
    empty = tuple(draw(st.lists(names, max_size=2))) if mode == "overwrite" else ()
    return Load(mode, tuple(records), empty)


@st.composite
def where(draw: st.DrawFn, kind: Kind, image: Image) -> Where:
    """Return a condition."""
    tests = []
    for _ in range(draw(st.integers(1, 2))):
        ends = ["src", "dst"] if kind.ends is not None else []
        name = draw(st.sampled_from([*ends, *(prop.name for prop in kind.props)]))
        if name in ends and kind.ends is not None:
            there = sorted(image[kind.ends[ends.index(name)]])
            tests.append(Test(name, draw(st.sampled_from(["=", "!="])), draw(st.sampled_from([*there, "x"]))))
            continue
        prop = kind.prop(name)
        ordered = prop.kind not in ("bool", "enum")
        operators = ["=", "=", "!=", "is null", *(["<", "<=", ">", ">="] if ordered else [])]
        tests.append(
            Test(name, draw(st.sampled_from(operators)), draw(st.sampled_from([*GOOD[prop.kind], None])))
        )
    return Where(tuple(tests), draw(st.booleans()))


@st.composite
def statements(draw: st.DrawFn, schema: Schema, image: Image) -> tuple[Statement, ...]:
    """Return inserts and updates, or deletes."""
    kinds = st.sampled_from(schema.kinds)
    found: list[Statement] = []
    if draw(st.integers(0, 3)) == 0:
        for _ in range(draw(st.integers(1, 2))):
            kind = draw(kinds.filter(_has_conditions))
            found.append(Delete(kind, draw(where(kind, image))))
        return tuple(found)
    wild = draw(st.integers(0, 4)) == 0
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(kinds)
        free = [prop for prop in kind.props if prop.name not in kind.key]
        if free and draw(st.integers(0, 2)) == 0:
            some: st.SearchStrategy[list[Prop]] = st.lists(st.sampled_from(free), min_size=1, unique=True)
            chosen = draw(some)
            values = {prop.name: draw(value(prop, wild=wild)) for prop in chosen}
            found.append(Update(kind, values, draw(where(kind, image))))
        else:
            found.append(Insert(kind, draw(row(kind, image, wild=wild))))
    return tuple(found)


def _has_conditions(kind: Kind) -> bool:
    return bool(kind.props) or kind.ends is not None


# -- the machine -------------------------------------------------------------------------------------


class Machine(RuleBasedStateMachine):
    """One graph and its model, written to in step."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="omnigraph-model-"))
        self.graph: Graph | None = None

    @initialize(schema=schemas(), most=st.sampled_from([2_000, 2_000, -1]), data=st.data())
    def make(self, schema: Schema, most: int, data: st.DataObject) -> None:
        """Make both, with a few nodes; a third of the graphs are judged by DataFusion alone."""
        og.init(self.folder / "g.og", str(schema), durability="os").close()
        store = GraphStore.open(self.folder / "g.og", durability="os")
        self.graph = Graph(store, partial(LocalExecutor, most=most))
        self.model = Model(schema)
        for kind in (*schema.nodes, *schema.nodes, *schema.nodes):
            record = Record(kind, data.draw(row(kind, self.model.image, wild=False)))
            self.run_load(Load("merge", (record,)))

    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        """Load something."""
        self.run_load(data.draw(loads(self.model.schema, self.model.image)))

    def run_load(self, write: Load) -> None:
        """Run one load on both sides."""
        self.step(lambda graph: drive.load(graph, write), lambda: self.model.load(write), always=True)

    @rule(data=st.data())
    def mutate(self, data: st.DataObject) -> None:
        """Run statements."""
        chosen = data.draw(statements(self.model.schema, self.model.image))
        self.step(lambda graph: drive.mutate(graph, chosen), lambda: self.model.mutate(chosen), always=False)

    @rule()
    def optimize(self) -> None:
        """Rewrite files: what comes after does not notice."""
        assert self.graph is not None
        self.graph.optimize()
        assert drive.image(self.graph, self.model.schema) == self.model.image

    def step(self, really: Callable[[Graph], Receipt], expected: Callable[[], Done], *, always: bool) -> None:
        """Do one write on both sides, and compare what came of it."""
        graph = self.graph
        assert graph is not None
        before = graph.store.snapshot().commit_id
        done = outcome(expected)
        if isinstance(done, Refused):
            event(f"refused: {done.code}")
            assert refused_as(graph, really) == done.code
            assert graph.store.snapshot().commit_id == before
            assert drive.image(graph, self.model.schema) == self.model.image
            return
        event("accepted" if done.nodes + done.edges else "nothing to do")
        receipt = really(graph)
        assert (receipt.affected_nodes, receipt.affected_edges) == (done.nodes, done.edges)
        commits = always or done.nodes + done.edges > 0
        assert receipt.parents == ((before,) if commits else ())
        image = drive.image(graph, self.model.schema)
        for kind in self.model.schema.kinds:
            assert same(image[kind.name], done.image[kind.name]), kind.name
        self.model.image = image  # from here on with the ids that were generated

    def teardown(self) -> None:
        """Leave nothing behind."""
        if self.graph is not None:
            self.graph.close()
        shutil.rmtree(self.folder)


def outcome(expected: Callable[[], Done]) -> Done | Refused:
    """Return what the model says, refusals too."""
    try:
        return expected()
    except Refused as refusal:
        return refusal


def refused_as(graph: Graph, really: Callable[[Graph], Receipt]) -> str:
    """Return the code of the first violation of a write that should be refused."""
    try:
        really(graph)
    except ConstraintViolation as error:
        return str(error.fields["violations"][0]["code"])
    except KeyConflict as error:
        return error.code
    return "accepted"


def same(found: Mapping[str, Row], expected: Mapping[str, Row]) -> bool:
    """Say whether two sets of rows are the same, but for ids that the model cannot know."""
    known = {row_id: row for row_id, row in expected.items() if not row_id.startswith(NEW)}
    if any(found.get(row_id) != row for row_id, row in known.items()):
        return False
    rest = [bare(row) for row_id, row in found.items() if row_id not in known]
    return Counter(rest) == Counter(bare(row) for row_id, row in expected.items() if row_id not in known)


def bare(row: Row) -> tuple[tuple[str, Any], ...]:
    """Return a row without its id, as something that can be counted."""
    return tuple(sorted((name, entry) for name, entry in row.items() if name != "id"))


COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "stateful_step_count": 10,
}

TestModel = pytest.mark.timeout(600)(Machine.TestCase)
TestModel.settings = settings(max_examples=10, derandomize=True, **COMMON)


class Longer(Machine):
    """The same, in many more sequences."""


TestModelAtLength = pytest.mark.full(pytest.mark.timeout(3_600)(Longer.TestCase))
TestModelAtLength.settings = settings(max_examples=500, **COMMON)
