"""Each gate fails when the property it guards is broken on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.chain import Chain
from omnigraph.storage.manifest.records import ManifestState
from omnigraph.storage.staging import Staging
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables import workbench
from tests.cost.test_write_cost import places
from tests.support.gates import (
    LIST_REQUESTS,
    check_at_most,
    check_flat,
    check_write,
    graph_at,
    measure_branches,
    measure_cold_writes,
    measure_writes,
)
from tests.support.proxy import S3Proxy
from tests.support.s3 import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.slow]


def never_fold(patch: pytest.MonkeyPatch) -> None:
    """Let the tail grow: a look-up then reads one more fragment for each commit since the table was made."""
    patch.setattr(workbench, "plan_fold", lambda sizes, incoming: frozenset())
    patch.setattr(workbench, "REWRITE_BELOW", -1)


def read_history_on_every_probe(patch: pytest.MonkeyPatch) -> None:
    """Walk the whole chain before each operation, as a row-based manifest would."""
    honest = Chain.latest

    def latest(self: Chain) -> ManifestState:
        state = honest(self)
        for version in range(1, state.version):
            self._dataset.at(version)
        return state

    patch.setattr(Chain, "latest", latest)


def open_every_table(patch: pytest.MonkeyPatch) -> None:
    """Touch all tables on each write, as per-table heads would need."""
    honest = Staging.stage

    def stage_all(self: Staging, txn: Any, plan: Any, reuse: Any = None) -> Any:
        for table_id, pin in txn.snapshot.state.pins.items():
            self._opener.at(f"tables/{table_id}", pin.version)
        return honest(self, txn, plan, reuse)

    patch.setattr(Staging, "stage", stage_all)


def wait_in_line(patch: pytest.MonkeyPatch) -> None:
    """Ask four more questions, one after the other, before each write."""
    honest = GraphStore.publish

    def publish(self: GraphStore, *given: Any, **named: Any) -> Any:
        for _ in range(4):
            self.snapshot()
        return honest(self, *given, **named)

    patch.setattr(GraphStore, "publish", publish)


def look_into_every_branch(patch: pytest.MonkeyPatch) -> None:
    """Resolve each branch's head when listing, as Lance's own listing does."""

    def gone(self: Branches, ref: Any) -> bool:
        return self.chain(ref.incarnation).latest().tombstone is not None

    patch.setattr(Branches, "_gone", gone)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_depth_gate_fails_when_cost_follows_history(
    s3_server: S3Server, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    read_history_on_every_probe(monkeypatch)
    for depth in (3, 12):
        with graph_at(*places(s3_server, proxy), depth=depth) as store:
            found.append(measure_writes(store, proxy, f"depth {depth}", hops=False))
    with pytest.raises(AssertionError):
        check_flat(found)


@pytest.mark.timeout(600)
def test_the_fresh_handle_gate_fails_when_the_tail_is_not_folded(
    s3_server: S3Server, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    never_fold(monkeypatch)
    for depth in (3, 12):
        direct, proxied = places(s3_server, proxy)
        with graph_at(direct, proxied, depth=depth):
            found.append(measure_cold_writes(proxied, proxy, f"depth {depth}"))
    with pytest.raises(AssertionError):
        check_flat(found)


@pytest.mark.timeout(600)
def test_the_width_gate_fails_when_every_table_is_opened(
    s3_server: S3Server, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    open_every_table(monkeypatch)
    for tables in (2, 6):
        with graph_at(*places(s3_server, proxy), depth=1, tables=tables) as store:
            found.append(measure_writes(store, proxy, f"{tables} tables", hops=False))
    with pytest.raises(AssertionError):
        check_flat(found)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_hop_gate_fails_when_steps_are_added_in_line(
    s3_server: S3Server, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_in_line(monkeypatch)
    with graph_at(*places(s3_server, proxy), depth=1) as store:
        figures = measure_writes(store, proxy, "in line")
    assert figures.mean <= 14, "the request bound alone would not notice"
    with pytest.raises(AssertionError):
        check_write(figures)


@pytest.mark.timeout(600)
def test_the_list_gate_fails_when_every_branch_is_looked_into(
    s3_server: S3Server, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with graph_at(*places(s3_server, proxy), depth=1, branches=5) as store:
        look_into_every_branch(monkeypatch)
        _, listed, _ = measure_branches(store, proxy, "5 branches")
    with pytest.raises(AssertionError):
        check_at_most(listed, LIST_REQUESTS)
