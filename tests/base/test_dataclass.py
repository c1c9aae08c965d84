"""Our dataclass is the standard's, made later: both run through the same cases."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import pytest

from omnigraph.base import dataclass as ours

FLAVOURS = [
    {},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "kw_only": True},
    {"frozen": True, "eq": False},
    {"frozen": True, "repr": False},
    {"slots": True},
    {"slots": True, "eq": False},
]


def made(dataclass: Any, options: dict[str, Any]) -> Any:
    """Return a class with every kind of field."""

    @dataclass(**options)
    class Sample:
        """Documented."""

        KIND: ClassVar[str] = "sample"
        name: str
        size: int = 3
        tags: list[str] = field(default_factory=list)
        hidden: str = field(default="h", repr=False, compare=False)
        computed: int = field(default=7, init=False)

        def doubled(self) -> int:
            return self.size * 2

    return Sample


@pytest.mark.parametrize("options", FLAVOURS, ids=str)
def test_both_make_the_same_class(options: dict[str, Any]) -> None:
    standard, other = made(dataclasses.dataclass, options), made(ours.dataclass, options)

    assert [(f.name, f.type, f.default, f.kw_only) for f in fields(other)] == [
        (f.name, f.type, f.default, f.kw_only) for f in fields(standard)
    ]
    assert other.__match_args__ == standard.__match_args__
    assert str(inspect.signature(other)) == str(inspect.signature(standard)).replace(
        "<factory>", str(inspect.signature(other).parameters["tags"].default)
    )
    assert (other.__hash__ is None) == (standard.__hash__ is None)
    assert hasattr(other("a") if "kw_only" not in options else other(name="a"), "__dict__") == (
        "slots" not in options
    )


@pytest.mark.parametrize("options", FLAVOURS, ids=str)
@pytest.mark.parametrize(
    "ask",
    [
        lambda cls: repr(cls(name="a", tags=["x"])).replace(cls.__qualname__, "").partition(" object at")[0],
        lambda cls: cls(name="a") == cls(name="a", hidden="other"),
        lambda cls: cls(name="a") == cls(name="b"),
        lambda cls: cls(name="a") == object(),
        lambda cls: asdict(cls(name="a", size=1)),
        lambda cls: asdict(replace(cls(name="a"), size=9)),
        lambda cls: cls(name="a").tags is cls(name="b").tags,
        lambda cls: (cls.KIND, cls(name="a", size=4).doubled(), cls.__doc__),
        lambda cls: asdict(copy.copy(cls(name="a", tags=["x"]))),
        lambda cls: cls(),
        lambda cls: cls("a", 1, [], "h", 5),
        lambda cls: cls(name="a", unknown=1),
        lambda cls: cls("a", 2).size,
        lambda cls: setattr(cls(name="a"), "size", 4),
        lambda cls: delattr(cls(name="a"), "size"),
        # Both at once: of two that live after one another, identity may be the same place in memory.
        lambda cls: len({*map(hash, [replace(cls(name="a"), tags=()), replace(cls(name="a"), tags=())])}),
    ],
)
def test_both_answer_alike(options: dict[str, Any], ask: Callable[[Any], Any]) -> None:
    assert outcome(ask, made(ours.dataclass, options)) == outcome(ask, made(dataclasses.dataclass, options))


def outcome(ask: Callable[[Any], Any], cls: Any) -> Any:
    """Return an answer, or the kind of error."""
    try:
        return ask(cls)
    except (TypeError, AttributeError, FrozenInstanceError) as error:
        return type(error)


@ours.dataclass(frozen=True, slots=True)
class Point:
    """At module level, for pickling."""

    x: int
    y: int = 0


@ours.dataclass(frozen=True, slots=True)
class Solid(Point):
    """Inherits fields and slots."""

    z: int = 1


@ours.dataclass(frozen=True)
class Circle:
    """Computes what it was not given, once."""

    radius: int

    def __post_init__(self) -> None:
        if self.radius < 0:
            raise ValueError("negative")

    @cached_property
    def area(self) -> int:
        """Three is close enough."""
        return 3 * self.radius**2


def test_values_travel_and_inherit() -> None:
    assert pickle.loads(pickle.dumps(Solid(1, 2, 3))) == Solid(1, 2, 3)
    assert repr(Solid(1)) == "Solid(x=1, y=0, z=1)"
    assert Point(1) != Solid(1)
    assert len({Point(1), Point(1, 0), Point(2)}) == 2
    match Solid(4, 5, 6):
        case Solid(x, _, z):
            assert (x, z) == (4, 6)


def test_what_runs_after_the_fields_are_set_runs() -> None:
    assert Circle(2).area == 12
    with pytest.raises(ValueError, match="negative"):
        Circle(-1)


def test_a_mutable_default_is_refused() -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @ours.dataclass
        class _Shared:
            tags: list[str] = []  # noqa: RUF012
