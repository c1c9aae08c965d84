"""The oracle sees what it is there to see: a defect of each kind is planted, and its promise is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.base.errors import CommitNotFound
from omnigraph.engine import graph as engine_graph
from omnigraph.engine.history.resolve_at import read_state
from omnigraph.engine.query import Queries
from omnigraph.storage.durability import FailpointHit, Step, armed
from omnigraph.storage.manifest.chain import Chain, MetadataDataset
from omnigraph.storage.manifest.records import encode
from omnigraph.storage.store import GraphStore
from tests.faults.cells import Store
from tests.faults.ground import Ground, opened, race
from tests.faults.judge import Left, Met, Outcome, attempt
from tests.faults.oracle import check_sound
from tests.faults.writers import BY_NAME, Writer, backup, beside, export, person
from tests.support.workers import once

pytestmark = pytest.mark.xdist_group("faults-local-mutation")
MUTATION = BY_NAME["mutation"]
Run = Callable[[Graph], object]


@pytest.fixture
def ground(grounds: Callable[[Store], Ground]) -> Ground:
    """Local disk."""
    return grounds("local")


@contextmanager
def left(ground: Ground, run: Run, writer: Writer = MUTATION, **what: Any) -> Iterator[Left]:
    """Let a planted defect be the writer, and yield what is to be judged."""
    course, place = ground.course(writer), ground.fresh(writer)
    with opened(place) as (graph, stale):
        outcome = what.pop("outcome", None) or attempt(run, graph)
        yield Left(writer, course, place, graph, stale, outcome, **what)


def judge(ground: Ground, run: Run, writer: Writer = MUTATION, **what: Any) -> None:
    """Judge it."""
    with left(ground, run, writer, **what) as found:
        found.judge()


def test_a_sound_writer_passes(ground: Ground) -> None:
    judge(ground, MUTATION.run)


def test_an_acknowledged_write_that_is_lost(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher that says done before it is."""
    ground.course(MUTATION)
    real = MetadataDataset.commit

    def commit(self: MetadataDataset, base: int, updates: dict[str, str | None], step: Step) -> int:
        return base + 1 if step is Step.PUBLISH else real(self, base, updates, step)

    with left(ground, lambda _: None) as found, monkeypatch.context() as patch:
        patch.setattr(MetadataDataset, "commit", commit)
        told = attempt(MUTATION.run, found.graph)
        patch.undo()
        assert told.returned
        with pytest.raises(AssertionError, match="neither as before nor as after"):
            replace(found, outcome=told).judge()


def test_a_commit_that_is_only_partly_there(ground: Ground) -> None:
    """A write of two types in two commits, interrupted between them."""
    two_types = BY_NAME["mutation-of-two-types"]
    half = 'query q() { insert Company { name: "firm" } }'
    with pytest.raises(AssertionError, match="neither as before nor as after"):
        judge(ground, lambda graph: graph.mutate(half), two_types, outcome=None)


def test_a_write_that_is_applied_twice(ground: Ground) -> None:
    """Its key is forgotten, so that whoever repeats it does it again."""
    body = 'query q() { update Person set { note: "x" } where age = 7 }'
    with left(ground, MUTATION.run) as found, pytest.raises(AssertionError, match="a repeat leads elsewhere"):
        replace(found, writer=replace(MUTATION, run=lambda graph: graph.mutate(body))).judge()


def test_a_row_that_vanished(ground: Ground) -> None:
    def lose(graph: Graph) -> object:
        receipt = MUTATION.run(graph)
        graph.mutate('query q() { delete Person where name = "p4" }')
        return receipt

    with pytest.raises(AssertionError, match="neither as before nor as after"):
        judge(ground, lose)


def test_a_fault_that_ends_on_the_wrong_side(ground: Ground) -> None:
    with pytest.raises(AssertionError, match="neither as before nor as after"):
        judge(ground, lambda _: None, outcome=Outcome(error="failpoint"), landed=True)


@pytest.mark.parametrize(
    "code", ["publish_contention", "staged_files_gone", "precondition_failed", "storage"]
)
def test_an_error_that_denies_what_was_done(ground: Ground, code: str) -> None:
    """The first three say that nothing was written, and a publish says `storage` only if nothing was."""
    with left(ground, MUTATION.run) as found, pytest.raises(AssertionError, match="and was denied"):
        replace(found, outcome=Outcome(error=code)).judge()


@pytest.mark.parametrize(("name", "code"), [("mutation", "outcome_unknown"), ("branch-delete", "storage")])
def test_an_error_that_admits_what_may_be_done_passes(ground: Ground, name: str, code: str) -> None:
    writer = BY_NAME[name]
    with left(ground, writer.run, writer) as found:
        replace(found, outcome=Outcome(error=code)).judge()


def test_a_report_that_denies_what_was_done(ground: Ground) -> None:
    build = BY_NAME["index-build"]
    with left(ground, build.run, build) as found, pytest.raises(AssertionError, match="says that it is not"):
        replace(found, outcome=Outcome(gave_up=True)).judge()


def test_a_change_of_a_rival_that_is_overwritten(ground: Ground) -> None:
    """The writer publishes what it had prepared, over what the rival made of the same table."""
    rivalry = ground.rivalry(MUTATION)
    with pytest.raises(AssertionError, match="neither as before nor as after"):
        judge(ground, MUTATION.run, met=Met.OTHERS, rivalry=rivalry)


def test_a_writer_that_others_cost_more_than_a_race(ground: Ground) -> None:
    with pytest.raises(AssertionError, match="more than a race"):
        judge(ground, lambda _: None, outcome=Outcome(error="integrity"), met=Met.OTHERS)


def test_a_handle_that_does_not_look_again(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Chain.latest
    with left(ground, MUTATION.run) as found:
        monkeypatch.setattr(Chain, "latest", lambda self: self.known or real(self))
        with pytest.raises(AssertionError, match="opened before shows something else"):
            found.judge()


def test_a_query_that_answers_from_before(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Queries.run
    kept: dict[str, Any] = {}

    def run(self: Queries, gq: Any, *arguments: Any, **named: Any) -> Any:
        return kept.setdefault(gq, real(self, gq, *arguments, **named))

    monkeypatch.setattr(Queries, "run", run)
    judge(ground, lambda _: None, outcome=Outcome(error="nothing was done"))
    with pytest.raises(AssertionError, match="a query shows something else"):
        judge(ground, MUTATION.run)


def test_tables_of_the_api_that_miss_by_a_commit(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def earlier(store: Any, catalogs: Any, branch: str, at: Any) -> Any:
        return read_state(store, catalogs, branch, at or f"{branch}~1")

    load = BY_NAME["load"]
    ground.course(load)
    monkeypatch.setattr(engine_graph, "read_state", earlier)
    with pytest.raises(AssertionError, match=r"Person: the API has 4\d+, time travel 8\d+, a scan 8\d+"):
        judge(ground, load.run, load)


def test_time_travel_that_misses_by_a_commit(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def earlier(store: Any, catalogs: Any, branch: str, at: Any) -> Any:
        return read_state(store, catalogs, branch, f"{branch}~1" if at else at)

    monkeypatch.setattr(engine_graph, "read_state", earlier)
    with pytest.raises(AssertionError, match="time travel"):
        judge(ground, MUTATION.run)


def test_a_receipt_for_a_commit_that_is_not_there(ground: Ground) -> None:
    with left(ground, MUTATION.run) as found:
        commit = replace(found.outcome.receipt.commit, id="01" * 13)  # type: ignore[attr-defined]
        receipt = replace(found.outcome.receipt, commit=commit)  # type: ignore[type-var]
        with pytest.raises((AssertionError, CommitNotFound), match="acknowledged as"):
            replace(found, outcome=Outcome(receipt)).judge()


def test_a_past_that_was_given_up(ground: Ground) -> None:
    def forget(graph: Graph) -> object:
        receipt = MUTATION.run(graph)
        graph.store.raise_floor("main", graph.store.snapshot().state.version)
        return receipt

    writer = replace(MUTATION, name="forgetful", run=forget)
    with pytest.raises(AssertionError, match="the past of main"):
        judge(ground, forget, writer)


def test_a_racing_write_that_is_lost(ground: Ground) -> None:
    with pytest.raises(AssertionError, match="racing write was acknowledged"):
        judge(ground, MUTATION.run, met=Met.RACER)


def test_something_in_the_way_of_the_next_write(ground: Ground) -> None:
    with (
        left(ground, MUTATION.run) as found,
        armed({"publish.before": once(lambda: race(found.place))}),
        pytest.raises(AssertionError, match="took 2 attempts"),
    ):
        found.judge()


def test_a_repeat_that_is_refused(ground: Ground) -> None:
    """A fork that left its name taken, although nobody can see it."""
    fork = BY_NAME["branch-create"]
    with left(ground, fork.run, fork) as found, pytest.raises(AssertionError, match="branch_exists"):
        replace(found, writer=replace(fork, done="")).judge()


def test_a_sweep_that_takes_a_row(ground: Ground) -> None:
    taken = 'query q() { delete Gone where name = "g1" }'
    with pytest.raises(AssertionError, match="a sweep changed"):
        judge(ground, lambda graph: graph.mutate(taken), BY_NAME["cleanup"])


def test_a_backup_that_changes_its_source(ground: Ground) -> None:
    with pytest.raises(AssertionError, match="read from changed"):
        judge(ground, lambda graph: graph.load([person("x")], mode="merge"), BY_NAME["backup"])


def test_a_backup_that_is_not_done(ground: Ground) -> None:
    with pytest.raises(AssertionError, match="done, and nothing is there"):
        judge(ground, lambda _: None, BY_NAME["backup"])


def test_a_backup_with_rows_that_its_commit_never_had(ground: Ground) -> None:
    """A branch is at its newest commit, and pins the tables that it began with."""

    def back_up(graph: Graph) -> object:
        backup(graph)
        with GraphStore.open(beside(graph), durability="os") as copy:
            chain, head = copy.branches.head("side")
            wrong = replace(head, version=head.version + 1, pins=chain.at(1).pins)
            was = encode(head)
            changed = {key: value for key, value in encode(wrong).items() if was.get(key) != value}
            chain.commit(wrong, changed, Step.PUBLISH)
        raise FailpointHit("after that")  # done, it would have to be as it is after every backup

    with pytest.raises(AssertionError, match="side of the copy is not what its commit was"):
        judge(ground, back_up, BY_NAME["backup"])


def test_a_clone_that_is_not_whole(ground: Ground) -> None:
    """It holds the rows of an older commit."""

    def clone(graph: Graph) -> object:
        return graph.clone(beside(graph), at="v0", durability="os")

    with pytest.raises(AssertionError, match="neither as before nor as after"):
        judge(ground, clone, BY_NAME["clone"])


def test_a_graph_that_the_doctor_would_not_let_go(ground: Ground) -> None:
    """Rows are whole; a file of an index is gone."""
    place = ground.fresh(MUTATION)
    with opened(place) as (graph, _):
        graph.ensure_indexes()
        check_sound(graph)
        for file in Path(place.address).glob("tables/*/_indices/*/*"):
            if file.is_file():
                file.unlink()
    with opened(place) as (graph, _), pytest.raises(AssertionError, match="index"):
        check_sound(graph)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda file: file.unlink(), "the manifest is there, and not"),
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "and should have"),
        (lambda file: file.write_bytes(file.read_bytes()[::-1]), "neither as before nor as after"),
    ],
    ids=["missing", "cut off", "changed"],
)
def test_an_export_that_is_not_whole(ground: Ground, spoil: Callable[[Path], object], said: str) -> None:
    def partial(graph: Graph) -> object:
        receipt = export(graph)
        spoil(next(Path(beside(graph)).rglob("node-Person*")))
        return receipt

    with pytest.raises(AssertionError, match=said):
        judge(ground, partial, BY_NAME["export"])
