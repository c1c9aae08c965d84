"""Scope: which variables of a match are bound, and where a block mentions those of the rows around it.

Room    catalog.query, under the checker of reads.
Rule    names resolve from top to bottom. What a block introduces stays inside it, unless the block is
        optional. A variable whose type was refused is bound to None, and never reported again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from omnigraph.catalog.model import TableType
from omnigraph.catalog.query.expressions import Variable


@dataclass
class Numbers:
    """Numbers the variables of one query, and its anonymous ones apart."""

    all: count[int] = field(default_factory=lambda: count(1))
    anonymous: count[int] = field(default_factory=lambda: count(1))


@dataclass
class Scope:
    """The variables that a clause can see."""

    numbers: Numbers = field(default_factory=Numbers)
    bound: dict[str, Variable | None] = field(default_factory=dict)
    outer: frozenset[str] = frozenset()  # names that were bound before the block began
    optional: bool = False
    introduced: list[Variable] = field(default_factory=list)
    mentioned: dict[str, None] = field(default_factory=dict)  # outer names, by clauses of the block itself
    nested: dict[str, None] = field(default_factory=dict)  # outer names, by blocks inside it

    def inside(self, *, optional: bool) -> Scope:
        """Return the scope of a block."""
        return Scope(self.numbers, dict(self.bound), frozenset(self.bound), optional)

    def leave(self, inner: Scope) -> None:
        """Take over what a block mentioned, and what it introduced if it is optional."""
        for name in (*inner.mentioned, *inner.nested):
            if name in self.outer:
                self.nested[name] = None
        if inner.optional:
            self.introduced += inner.introduced
            self.bound = inner.bound

    def __contains__(self, name: str) -> bool:
        return name in self.bound

    def find(self, name: str) -> Variable | None:
        """Return a bound variable; a refused one is None."""
        if name in self.outer:
            self.mentioned[name] = None
        return self.bound[name]

    def bind(self, name: str, declared: TableType, *, anonymous: bool = False) -> Variable:
        """Introduce a variable."""
        shown = f"_@{next(self.numbers.anonymous):04d}" if anonymous else name
        variable = Variable(next(self.numbers.all), shown, declared, self.optional, anonymous)
        self.introduced.append(variable)
        if not anonymous:
            self.bound[name] = variable
        return variable

    def poison(self, name: str) -> None:
        """Introduce a variable whose type is not known."""
        self.bound.setdefault(name, None)

    @property
    def uses(self) -> tuple[Variable, ...]:
        """The outer variables that the block and the blocks inside it mention."""
        names = dict.fromkeys((*self.mentioned, *self.nested))
        return tuple(v for name in names if (v := self.bound[name]) is not None)
