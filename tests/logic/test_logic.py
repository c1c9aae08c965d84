"""Every logic test, on every surface, in every way of reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import count, product
from math import ceil
from pathlib import Path
from zlib import crc32

import pytest

from tests.logic.cases import Branch, Case, Mark, Mutate, Query, Refusal, World, load_cases, same, same_rows
from tests.logic.surfaces import SURFACES, Answer, Place, Refused, Surface, Traversal, Way

HERE = Path(__file__).parent
TRAVERSALS: tuple[Traversal, ...] = ("lookup", "csr")
RULES: tuple[frozenset[str] | None, ...] = (None, frozenset())
PLACES: tuple[Place, ...] = ("main", "branch", "commits")
# Each choice is met in the default run, all their combinations in the full one.
OFTEN = [Way("lookup", None, "branch"), Way("csr", frozenset(), "commits"), Way("csr", None, "main")]
WAYS = [
    pytest.param(way, id=str(way), marks=[] if way in OFTEN else [pytest.mark.full])
    for way in (Way(*choice) for choice in product(TRAVERSALS, RULES, PLACES))
]
CASES = load_cases(HERE)
FILES = sorted({case.file for case in CASES})
EMBEDDED = "embedded"
_numbers = count()

OpenWorld = Callable[[str, World, Way], Surface]


@pytest.fixture(scope="session")
def open_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenWorld]:
    """Open the graph of a world; cases share it, since those that write do so on branches of their own."""
    opened: list[Surface] = []

    @cache
    def open_once(surface: str, schema: str, way: Way, world: _ByIdentity) -> Surface:
        opened.append(SURFACES[surface](tmp_path_factory.mktemp("world"), world.world, way))
        return opened[-1]

    yield lambda surface, world, way: open_once(surface, world.schema, way, _ByIdentity(world))
    for surface in opened:
        surface.close()


class _ByIdentity:
    """A world as a key: all cases under one `data` hold the same object."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.world is other.world

    def __hash__(self) -> int:
        return id(self.world)


def sample(file: str) -> list[Case]:
    """Return a fifth of a file's cases, one at least: those whose titles have the smallest checksums."""
    inside = [case for case in CASES if case.file == file]
    return sorted(inside, key=lambda case: crc32(case.title.encode()))[: ceil(len(inside) / 5)]


def marks(case: Case, surface: str) -> list[pytest.MarkDecorator]:
    """Keep the cases of a file on one worker, for they share graphs; leave most repeats to the full run."""
    together = pytest.mark.xdist_group(f"logic {case.file}")
    return [together] if surface == EMBEDDED or str(case) in OFTEN_REPEATED else [together, pytest.mark.full]


OFTEN_REPEATED = {str(case) for file in FILES for case in sample(file)}
ON_SURFACES = [
    pytest.param(case, surface, id=f"{case}-{surface}", marks=marks(case, surface))
    for case in CASES
    for surface in SURFACES
]


@pytest.mark.parametrize(("case", "surface"), ON_SURFACES)
def test_case(case: Case, surface: str, open_world: OpenWorld) -> None:
    run(case, open_world(surface, case.world, Way()))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("file", FILES)
def test_cases_have_the_same_outcome_in_every_way(file: str, way: Way, open_world: OpenWorld) -> None:
    faults = []
    for case in CASES:
        if case.file != file:
            continue
        try:
            run(case, open_world(EMBEDDED, case.world, way))
        except (AssertionError, pytest.fail.Exception) as fault:
            faults.append(f"{case}\n{fault}")
    assert not faults, "\n".join(faults)


# -- running -----------------------------------------------------------------------------------------


def run(case: Case, graph: Surface) -> None:
    """Run the steps of a case; what it writes goes to a branch of its own."""
    branch = graph.base
    if case.writes:
        branch = f"case-{next(_numbers)}"
        graph.fork(branch, graph.base)
    names = {"here": branch}
    marks: dict[str, str] = {}
    for step in case.steps:
        match step:
            case Branch(name):
                names[name] = f"{branch}-{name}"
                graph.fork(names[name], branch)
            case Mark(name):
                marks[name] = graph.head(branch)
            case Query():
                _query(step, graph, names[step.branch or "here"], marks)
            case Mutate():
                _mutate(step, graph, names[step.branch or "here"])


def _query(step: Query, graph: Surface, branch: str, marks: dict[str, str]) -> None:
    def ask() -> Answer:
        at = None if step.at is None else marks[step.at]
        return graph.query(step.text, step.params, step.name, branch, at)

    if step.refusal is not None:
        _refused(ask, step.refusal)
        return
    answer = ask()
    if step.columns is not None:
        assert answer.columns == step.columns
    if step.rows is not None:
        assert same_rows(step.rows, answer.rows), _difference(step, answer)


def _mutate(step: Mutate, graph: Surface, branch: str) -> None:
    def change() -> tuple[int, int]:
        return graph.mutate(step.text, step.params, step.name, branch)

    if step.refusal is not None:
        _refused(change, step.refusal)
        return
    found = change()
    if step.wrote is not None:
        assert found == step.wrote


def _refused(action: Callable[[], object], refusal: Refusal) -> None:
    with pytest.raises(Refused) as caught:
        action()
    found = str(caught.value)
    assert caught.value.code == refusal.code, found
    for fragment in refusal.fragments:
        assert fragment in found


def _difference(step: Query, answer: Answer) -> str:
    """Return expected and found rows side by side; wrong ones are marked."""
    expected, found = list(step.rows or ()), answer.rows
    lines = [f"line {step.line}: columns {answer.columns}"]
    for position in range(max(len(expected), len(found))):
        left = expected[position] if position < len(expected) else None
        right = found[position] if position < len(found) else None
        sign = " " if left is not None and right is not None and same(left, right) else "!"
        lines.append(f"{sign} expected {left}   found {right}")
    return "\n".join(lines)
