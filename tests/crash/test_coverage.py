"""Every durable step is passed by some operation of this suite, and every operation passes what it says.

The table of `operations.py` is what the killing tests go by; here it is compared with what really happens.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.storage.derived.files import folder_of
from omnigraph.storage.durability import names
from omnigraph.storage.store import GraphStore
from tests.crash.ground import Ground
from tests.crash.operations import BY_NAME, OPERATIONS, TAIL, UNLIKE_OTHERS, Operation
from tests.support.graphs import PERSON

pytestmark = pytest.mark.xdist_group("crash")


@pytest.mark.parametrize("operation", [*OPERATIONS, *UNLIKE_OTHERS], ids=str)
def test_operation_passes_exactly_the_steps_it_names(ground: Ground, operation: Operation) -> None:
    assert set(ground.trace(operation)) == ground.passes(operation)


def test_every_failpoint_is_passed_by_some_operation(local_ground: Ground) -> None:
    """A new durable step needs an operation that is killed there."""
    matrix = {
        point: [one.name for one in (*OPERATIONS, *UNLIKE_OTHERS) if point in local_ground.trace(one)]
        for point in names()
    }

    assert [point for point, operations in matrix.items() if not operations] == []


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_no_step_begins_that_does_not_end(ground: Ground, operation: Operation) -> None:
    passed = ground.trace(operation)
    for step in operation.steps:
        assert passed.count(f"{step.value}.before") == passed.count(f"{step.value}.after")


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_operation_becomes_visible_in_one_step(ground: Ground, operation: Operation) -> None:
    assert ground.trace(operation).count(f"{operation.visible.value}.after") == 1


def test_the_write_really_folds_deletes_and_derives(local_ground: Ground) -> None:
    """Otherwise dying at those steps would prove less than it seems to."""
    write = BY_NAME["write"]
    place = local_ground.fresh(write)
    with GraphStore.open(place.address) as store:
        before = store.table(store.snapshot(), PERSON)
        fragments = {part.fragment_id for part in before.get_fragments()}
        write.run(place.address, place.options)
        after = store.table(store.snapshot(), PERSON)

    left = {part.fragment_id: part for part in after.get_fragments()}
    assert len(fragments - left.keys()) == TAIL, "the tail was folded"
    assert any(part.metadata.deletion_file is not None for part in left.values()), "rows were deleted"
    folded = [file.path for number in left.keys() - fragments for file in left[number].metadata.files]
    assert folded
    for file in folded:
        assert any(Path(place.address, "tables", PERSON, folder_of(file)).iterdir()), "it has key hashes"


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.needs_base], ids=str)
def test_operation_changes_something_that_is_looked_at(ground: Ground, operation: Operation) -> None:
    """If before and after looked alike, a state between them could not be told from either."""
    assert ground.before != ground.after(operation)
