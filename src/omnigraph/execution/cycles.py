"""Cycles: whether two nodes that are bound are joined, for many rows at once.

A cycle in a pattern is closed by an edge between nodes that other edges led to. Two operators do this:

- `PairTest` says for each row whether its two nodes are joined: few rows by the neighbours of one side, many
  by a bit map of all pairs. Pairs are hashed into the map, which is small enough for the processor's caches,
  and what it lets through is looked up in the sorted pairs, so that the map is never believed.
- `Intersection` binds a node that several edges lead to. For each row it lists the shorter of two adjacency
  lists and tests the other, block by block, so that only the rows that stay are ever made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omnigraph.catalog.query.expressions import Variable
from omnigraph.catalog.query.statements import Expand
from omnigraph.execution.arrays import (
    Mask,
    blocks_of,
    in_sorted,
    in_threads,
    is_member,
    numbered,
    repeated,
    take,
)
from omnigraph.execution.columns import Ordinals
from omnigraph.execution.context import Context
from omnigraph.execution.expand import Expander, expander_from, keys_of
from omnigraph.execution.match_rows import MatchRows

BITS_PER_PAIR = 32  # of the map: about one pair in so many that are not there gets through
MOST_BITS = 1 << 28  # made from a byte each
BLOCK = 1 << 18  # pairs tested together: their arrays stay in the processor's caches
WAVE = 64  # blocks between two looks at the account
WHOLE_BELOW = 8  # all pairs are mapped where there are fewer than so many for each row that is tested
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def other_end(clause: Expand, variable: Variable) -> Variable:
    """Return the end of a clause that is not this one."""
    return clause.right if variable == clause.left else clause.left


class PairTest:
    """Says which pairs of nodes are joined by one hop."""

    def __init__(self, context: Context, expander: Expander, rows: int) -> None:
        self._expander = expander
        self.span = max(expander.end.span, 1)
        self._whole: _PairMap | None = None
        pairs = expander.edge_rows
        if rows * WHOLE_BELOW > pairs and rows and not expander.by_lookups(rows):
            bits = 1 << min(max(pairs * BITS_PER_PAIR, 64).bit_length(), MOST_BITS.bit_length() - 1)
            context.budget.check_bytes(pairs * 16 + bits, "a map of all pairs")
            self._whole = _PairMap(keys_of(*expander.lists(), self.span), bits)

    def holds(self, nears: Ordinals, fars: Ordinals) -> Mask:
        """Return where a node is joined to the one beside it; nodes may be missing."""
        if self._whole is not None:
            whole, span = self._whole, self.span
            stretches = [(start, start + BLOCK) for start in range(0, len(nears), BLOCK)]

            def tested(stretch: tuple[int, int]) -> Mask:
                near, far = nears[slice(*stretch)], fars[slice(*stretch)]
                joined = np.zeros(len(near), dtype=bool)
                joined[whole.among(np.where((near < 0) | (far < 0), -1, near * span + far))] = True
                return joined

            return np.concatenate([np.zeros(0, bool), *in_threads(tested, stretches)])
        there = (nears >= 0) & (fars >= 0)
        if not there.all():
            joined = np.zeros(len(nears), dtype=bool)
            joined[there] = self.holds(nears[there], fars[there])
            return joined
        nodes, back = numbered(nears, self._expander.start.span)
        if len(nodes) == 1:
            return is_member(fars, self._expander.joined(nodes)[1], self.span)
        places, others = self._expander.joined(nodes)
        keys = places * self.span + others
        keys.sort(kind="stable")  # in order already, but for what was written last
        return in_sorted(back * self.span + fars, keys)

    def among(self, keys: Ordinals) -> Ordinals:
        """Return the places of the keys, each `near * span + far`, that are pairs; for the whole map."""
        assert self._whole is not None
        return self._whole.among(keys)


class _PairMap:
    """Sorted keys behind a bit map of their hashes."""

    def __init__(self, keys: Ordinals, bits: int) -> None:
        self._keys = keys
        self._shift = np.uint64(64 - bits.bit_length() + 1)
        present = np.zeros(bits, dtype=bool)
        for start in range(0, len(keys), BLOCK):
            present[self._hashed(keys[start : start + BLOCK])] = True
        self._map: NDArray[np.uint8] = np.packbits(present, bitorder="little")

    def _hashed(self, keys: Ordinals) -> NDArray[np.uint64]:
        hashed = keys.view(np.uint64) * MULTIPLIER
        hashed >>= self._shift
        return hashed

    def among(self, keys: Ordinals) -> Ordinals:
        """Return the places of the keys that are here."""
        hashed = self._hashed(keys)
        words = self._map[(hashed >> np.uint64(3)).view(np.int64)]
        words >>= hashed.astype(np.uint8) & np.uint8(7)
        words &= np.uint8(1)
        maybe = np.flatnonzero(words.view(bool))
        return maybe[in_sorted(keys[maybe], self._keys)]


class Intersection:
    """Binds a variable that several clauses lead to, each from a bound variable."""

    def __init__(self, context: Context, variable: Variable, clauses: Sequence[Expand]) -> None:
        self._context = context
        self._variable = variable
        self._clauses = list(clauses)

    def run(self, rows: MatchRows, columns: int) -> tuple[Ordinals, Ordinals]:
        """Return (row, node) for each node that all clauses lead to from the row."""
        nears = [other_end(clause, self._variable) for clause in self._clauses]
        expanders = [
            expander_from(self._context, clause, near)
            for clause, near in zip(self._clauses, nears, strict=True)
        ]
        for near in nears:
            present = rows.bound[near] >= 0
            if not present.all():
                kept = np.flatnonzero(present)
                at, others = self.run(rows.take(kept), columns)
                return kept[at], others
        if not rows.count:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if rows.count * WHOLE_BELOW <= max(expander.edge_rows for expander in expanders) or any(
            expander.by_lookups(rows.count) for expander in expanders
        ):
            return self._few(rows, nears, expanders, columns)
        at, others = self._shorter(rows, (nears[0], nears[1]), (expanders[0], expanders[1]), columns)
        return self._tested(rows, at, others, nears[2:], expanders[2:])

    def _few(
        self, rows: MatchRows, nears: list[Variable], expanders: list[Expander], columns: int
    ) -> tuple[Ordinals, Ordinals]:
        """Expand by the first clause, and test the others."""
        self._context.note("one list, then tested")
        at, others = expanders[0].joined(rows.bound[nears[0]], columns)
        return self._tested(rows, at, others, nears[1:], expanders[1:])

    def _tested(
        self,
        rows: MatchRows,
        at: Ordinals,
        others: Ordinals,
        nears: list[Variable],
        expanders: list[Expander],
    ) -> tuple[Ordinals, Ordinals]:
        for near, expander in zip(nears, expanders, strict=True):
            there = PairTest(self._context, expander, len(at)).holds(take(rows.bound[near], at), others)
            at, others = at[there], others[there]
        return at, others

    def _shorter(
        self,
        rows: MatchRows,
        nears: tuple[Variable, Variable],
        expanders: tuple[Expander, Expander],
        columns: int,
    ) -> tuple[Ordinals, Ordinals]:
        """List the shorter of two lists of each row, and test in the longer."""
        self._context.note("the shorter of two lists, tested in the other")
        nodes = [rows.bound[near] for near in nears]
        lists = [expander.lists() for expander in expanders]
        first = take(lists[0][0], nodes[0] + 1) - take(lists[0][0], nodes[0])
        second = take(lists[1][0], nodes[1] + 1) - take(lists[1][0], nodes[1])
        shorter = first <= second
        parts = []
        alike = expanders[0].same_way(expanders[1])
        known: PairTest | None = None
        for listed, tested, chosen in ((0, 1, shorter), (1, 0, ~shorter)):
            at = np.flatnonzero(chosen)
            if not len(at):
                continue
            test = known if known is not None and alike else None
            known = test or PairTest(self._context, expanders[tested], rows.count)
            parts.append(
                self._listed(
                    at, take(nodes[listed], at), lists[listed], take(nodes[tested], at), known, columns
                )
            )
        return (
            np.concatenate([part[0] for part in parts]),
            np.concatenate([part[1] for part in parts]),
        )

    def _listed(
        self,
        at: Ordinals,
        listed: Ordinals,
        lists: tuple[Ordinals, NDArray[Any]],
        tested: Ordinals,
        test: PairTest,
        columns: int,
    ) -> tuple[Ordinals, Ordinals]:
        offsets, others = lists
        starts = take(offsets, listed)
        counts = take(offsets, listed + 1) - starts
        bases = tested * test.span

        def block(stretch: tuple[int, int]) -> tuple[Ordinals, Ordinals]:
            part = slice(*stretch)
            owners, places = repeated(counts[part], starts[part])
            candidates = others[places]
            keys = bases[part][owners]
            keys += candidates
            hits = test.among(keys)
            return at[part][owners[hits]], candidates[hits].astype(np.int64)

        stretches = blocks_of(counts, min(BLOCK, max(self._context.budget.limit >> 12, 1024)))
        done: list[tuple[Ordinals, Ordinals]] = []
        total = 0
        for wave in range(0, len(stretches), WAVE):
            outcomes = in_threads(block, stretches[wave : wave + WAVE])
            total += sum(len(hits) for _, hits in outcomes)
            self._context.budget.check(total, columns, "closing a cycle")
            done += outcomes
        return np.concatenate([rows for rows, _ in done]), np.concatenate([hits for _, hits in done])
