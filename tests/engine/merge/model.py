"""Model: branches, commits and merges in plain dictionaries, slow and obvious.

Room    tests.engine.merge. Knows nothing of the engine. An image maps ids to properties; edges have `src` and
        `dst` among them. History is a graph of commits, ancestors are sets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

Entity = dict[str, Any]
Image = dict[tuple[str, str], Entity]  # (kind, id) -> properties
GONE: Any = object()


@dataclass(frozen=True)
class Commit:
    number: int
    parents: tuple[Commit, ...]
    image: Image = field(hash=False, compare=False)

    def ancestors(self) -> set[Commit]:
        found = {self}
        for parent in self.parents:
            found |= parent.ancestors()
        return found


class Model:
    """The heads of all branches."""

    def __init__(self, branches: list[str]) -> None:
        self._numbers = count()
        root = Commit(next(self._numbers), (), {})
        self.heads = dict.fromkeys(branches, root)

    def image(self, branch: str) -> Image:
        return self.heads[branch].image

    def commit(self, branch: str, image: Image, merged: Commit | None = None) -> None:
        parents = (self.heads[branch],) if merged is None else (self.heads[branch], merged)
        self.heads[branch] = Commit(next(self._numbers), parents, image)

    def fork(self, name: str, source: str) -> None:
        self.heads[name] = self.heads[source]

    def merge(self, source: str, target: str) -> str | set[tuple[str, str]]:
        """Merge and say how it ended, or return (kind of conflict, entity id) of all conflicts."""
        theirs, ours = self.heads[source], self.heads[target]
        if theirs in ours.ancestors():
            return "already_up_to_date"
        bases = best_common(ours, theirs)
        image, conflicts = three_way([base.image for base in bases], ours.image, theirs.image)
        conflicts = conflicts or orphans(image)
        if conflicts:
            return conflicts
        outcome = "fast_forward" if bases == [ours] else "merged"
        self.commit(target, image, theirs)
        return outcome


def best_common(one: Commit, other: Commit) -> list[Commit]:
    common = one.ancestors() & other.ancestors()
    return [c for c in common if not any(c is not d and c in d.ancestors() for d in common)]


def three_way(bases: list[Image], ours: Image, theirs: Image) -> tuple[Image, set[tuple[str, str]]]:
    image: Image = {}
    conflicts: set[tuple[str, str]] = set()
    for key in sorted({*bases[0], *ours, *theirs}):
        states = [base.get(key) for base in bases]
        mine, other = ours.get(key), theirs.get(key)
        found, kind = entity(states, mine, other)
        if kind is not None:
            conflicts.add((kind, key[1]))
        elif found is not None:
            image[key] = found
    return image, conflicts


def entity(
    bases: list[Entity | None], ours: Entity | None, theirs: Entity | None
) -> tuple[Entity | None, str | None]:
    if ours == theirs:
        return ours, None
    if any(base != bases[0] for base in bases):
        return None, "divergent_update"  # the history itself is undecided about it
    base = bases[0]
    if theirs == base:
        return ours, None
    if ours == base:
        return theirs, None
    if ours is None or theirs is None:
        return None, "delete_vs_update"
    merged: Entity = {}
    for unit in units(ours):
        before = None if base is None else {name: base[name] for name in unit}
        mine, other = {name: ours[name] for name in unit}, {name: theirs[name] for name in unit}
        if mine == other or other == before:
            merged |= mine
        elif mine == before:
            merged |= other
        else:
            return None, "divergent_insert" if base is None else "divergent_update"
    return merged, None


def units(one: Entity) -> list[tuple[str, ...]]:
    ends = [("src", "dst")] if "src" in one else []
    return [*ends, *((name,) for name in one if name not in ("src", "dst"))]


def orphans(image: Image) -> set[tuple[str, str]]:
    return {
        ("orphan_edge", key[1])
        for key, one in image.items()
        if key[0] == "edge" and any(("node", one[end]) not in image for end in ("src", "dst"))
    }
