"""A frozen record is a value: made by position or name, compared by its fields, never changed."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import pytest

from omnigraph.base.frozen import FrozenRecord, uncompared


class Point(FrozenRecord):
    x: int
    y: int
    label: str = uncompared()


class Pair(FrozenRecord):
    x: int
    y: int = 0


class Triple(Pair):
    z: int = 0


def test_a_subclass_adds_to_the_fields_of_its_parent() -> None:
    assert repr(Triple(1, z=3)) == "Triple(x=1, y=0, z=3)"
    assert Triple(1, 2) != Pair(1, 2)


def test_values_are_given_by_position_by_name_or_by_default() -> None:
    assert Pair(1) == Pair(x=1, y=0) == Pair(1, 0)
    for wrong in ((), (1, 2, 3)):
        with pytest.raises(TypeError, match="Pair takes x, y"):
            Pair(*wrong)
    with pytest.raises(TypeError):
        Pair(1, z=2)  # type: ignore[call-arg]


def test_what_is_uncompared_takes_no_part_in_equality_hash_and_repr() -> None:
    here, there = Point(1, 2, "here"), Point(1, 2, "there")

    assert here == there
    assert hash(here) == hash(there)
    assert repr(here) == "Point(x=1, y=2)"
    assert here != Point(1, 3, "here")
    assert Pair(1, 2) != here


def test_a_record_is_matched_copied_and_pickled_and_stays_as_it_is() -> None:
    point = Point(1, 2, "here")
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)
    assert point.replaced(y=5) == Point(1, 5, "elsewhere")
    assert pickle.loads(pickle.dumps(point)).label == "here"
    with pytest.raises(FrozenInstanceError):
        point.x = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x
