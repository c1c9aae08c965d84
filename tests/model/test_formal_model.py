"""The models of docs/model hold within their bounds, and each guard is needed."""

from __future__ import annotations

import re

import pytest

from scripts import check_model
from scripts.check_model import BRANCHES, MODELS, PUBLISH, SMALL, WHOLE, Found, Run, check, not_reached, read

MISSING = check_model.missing_tools()
needs_spin = pytest.mark.skipif(bool(MISSING), reason="to check the models, install " + " and ".join(MISSING))

ENDED = "State-vector 136 byte, depth reached 9, errors: {errors}\n  12 states, stored\nmarks reached: 3\n"


@needs_spin
@pytest.mark.slow
@pytest.mark.parametrize("run", SMALL, ids=lambda run: f"{run.name} {run.bound}")
def test_the_small_bound_is_as_expected(run: Run) -> None:
    found = check(run)

    assert found.is_expected, check_model.row(found)
    assert found.states > 100, "the search really happened"


@needs_spin
@pytest.mark.full
def test_the_whole_bound_is_as_expected_and_every_interesting_step_is_taken() -> None:
    found = [check(run) for run in WHOLE]

    assert [check_model.row(one) for one in found if not one.is_expected] == []
    assert not_reached(found) == []


@pytest.mark.parametrize("model", [PUBLISH, BRANCHES])
def test_every_guard_of_a_model_is_taken_out_in_some_run(model: str) -> None:
    guards = set(re.findall(r"#ifn?def NO_(\w+)", (MODELS / model).read_text()))

    assert guards == {run.without for run in WHOLE if run.model == model and run.without}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param(ENDED.format(errors=0), True, id="complete"),
        pytest.param(ENDED.format(errors=1) + "pan:1: assertion violated x\n", False, id="broken"),
        pytest.param("error: max search depth too small\n" + ENDED.format(errors=0), False, id="too-deep"),
        pytest.param("pan: out of memory\n" + ENDED.format(errors=0), False, id="out-of-memory"),
        pytest.param("Segmentation fault\n", False, id="no-answer"),
    ],
)
def test_only_a_complete_search_without_errors_counts_for_a_sound_model(said: str, expected: bool) -> None:
    found: Found = read(Run(PUBLISH, ""), said)

    assert found.is_expected is expected


@pytest.mark.parametrize("said", [ENDED.format(errors=0), "Segmentation fault\n"])
def test_a_guard_whose_absence_breaks_no_promise_is_not_as_expected(said: str) -> None:
    assert not read(Run(PUBLISH, "", "SWAP"), said).is_expected


def test_a_step_that_no_sound_search_took_is_named() -> None:
    found = read(Run(PUBLISH, ""), ENDED.format(errors=0))

    assert f"{PUBLISH}: CONTENTION" in not_reached([found])
    assert f"{PUBLISH}: ACKED" not in not_reached([found])
