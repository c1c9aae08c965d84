"""Degrees: how many edges or neighbours nodes have, as what versions share and what one version changed.

An array over all nodes is not made for each version: few of them differ from those of the stored lists. A sum
over all nodes is that of the shared array, corrected where the version differs.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.execution.arrays import is_member, sorted_distinct, take
from omnigraph.execution.columns import NOTHING, Ordinals

LARGEST = 2**63 - 1


@dataclass(frozen=True, eq=False)
class SharedDegrees:
    """Degrees by home, the same in many versions."""

    counts: NDArray[np.integer[Any]]

    @property
    def nbytes(self) -> int:
        """Memory taken; an array that lies in a mapped file takes none."""
        return self.counts.nbytes if self.counts.flags.owndata else 0

    @cached_property
    def _products(self) -> WeakKeyDictionary[SharedDegrees, int]:
        return WeakKeyDictionary()

    def of(self, nodes: Ordinals) -> Ordinals:
        """Return the degrees of some nodes; those after the last one have none."""
        if not len(self.counts) or not len(nodes):
            return np.zeros(len(nodes), np.int64)
        beyond = nodes >= len(self.counts)
        if not beyond.any():
            return take(self.counts, nodes).astype(np.int64)  # type: ignore[no-any-return]
        own: Ordinals = take(self.counts, np.where(beyond, 0, nodes)).astype(np.int64)
        own[beyond] = 0
        return own

    def sum_of_products(self, other: SharedDegrees) -> int:
        """Return the sum of both multiplied node by node; worked out once."""
        known = self._products.get(other)
        if known is None:
            length = min(len(self.counts), len(other.counts))
            known = exact_sum_of_products(self.counts[:length], other.counts[:length])
            self._products[other] = known
        return known


@dataclass(frozen=True, eq=False)
class Degrees:
    """The degrees of all nodes of a version, by where they live."""

    shared: SharedDegrees
    nodes: Ordinals  # ascending: those whose degree is another than the shared one
    values: Ordinals  # their degrees
    span: int

    @classmethod
    def of_all(cls, values: Ordinals) -> Degrees:
        """Return degrees that are known node by node."""
        return cls(SharedDegrees(values), NOTHING, NOTHING, len(values))

    def of(self, nodes: Ordinals) -> Ordinals:
        """Return the degrees of some nodes."""
        degrees = self.shared.of(nodes)
        changed = np.flatnonzero(is_member(nodes, self.nodes, self.span))
        degrees[changed] = self.values[np.searchsorted(self.nodes, nodes[changed])]
        return degrees

    def dense(self) -> Ordinals:
        """Return the degree of every node."""
        degrees = np.zeros(self.span, np.int64)
        degrees[: len(self.shared.counts)] = self.shared.counts
        degrees[self.nodes] = self.values
        return degrees

    def sum_of_products(self, other: Degrees) -> int:
        """Return the sum over all nodes of both degrees multiplied."""
        shared = self.shared.sum_of_products(other.shared)
        if not len(self.nodes) and not len(other.nodes):
            return shared
        changed = sorted_distinct(np.sort(np.concatenate([self.nodes, other.nodes])))
        return (
            shared
            - exact_sum_of_products(self.shared.of(changed), other.shared.of(changed))
            + exact_sum_of_products(self.of(changed), other.of(changed))
        )


def exact_sum_of_products(left: NDArray[Any], right: NDArray[Any]) -> int:
    """Multiply numbers that are not negative, and add up: in 64 bits where that is sure to do."""
    if not len(left):
        return 0
    if int(left.max()) * int(right.max()) * len(left) > LARGEST:
        return sum(a * b for a, b in zip(left.tolist(), right.tolist(), strict=True))
    return int(np.dot(left.astype(np.int64), right.astype(np.int64)))


def changed_degrees(shared: SharedDegrees, nodes: Ordinals, changes: Ordinals) -> tuple[Ordinals, Ordinals]:
    """Return nodes that changed, ascending, and their degrees now; the nodes given may repeat."""
    order = np.argsort(nodes, kind="stable")
    ascending = nodes[order]
    distinct = sorted_distinct(ascending)
    sums = np.zeros(len(distinct), np.int64)
    np.add.at(sums, np.searchsorted(distinct, ascending), changes[order])
    return distinct, shared.of(distinct) + sums
