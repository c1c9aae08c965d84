"""The protocol as a small state machine, explored exhaustively (X-42).

Room    tests. No I/O and no Lance: storage is a value. What the engine decides by pure functions (`advance`,
        `control`, `decide`) is the engine's own code; what it does by I/O is a step here.
Actors  two writers   capture, stage a file, swap; when the swap loses: look again, decide, go on
        one cleaner   list files, raise the floor, trace what is needed, delete the rest; two rounds, no grace
        one deleter   tombstone the branch
Steps   each is atomic; every interleaving of them is visited. Since the promises are checked in every state,
        a process that dies is covered as well: it is one that takes no further step.
Rules   `Rules` are what the protocol rests on; a test breaks them one by one and must see the model fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from omnigraph.base.errors import StaleVersion
from omnigraph.base.frozen import FrozenMap
from omnigraph.storage.manifest.records import (
    ChainIdentity,
    CommitKind,
    CommitRecord,
    ManifestState,
    Pin,
    Sweep,
    advance,
    control,
)
from omnigraph.storage.publish import Decision, decide

NEVER_SWEPT = 10**9
FILES_OF = 100  # a writer's files are numbered from a multiple of this, by the version they were staged on


@dataclass(frozen=True, eq=False)
class Version:
    """One manifest version; equal states are the same object, which makes comparing worlds cheap."""

    state: ManifestState


@cache
def version(state: ManifestState) -> Version:
    """Return the one object for a state."""
    return Version(state)


@dataclass(frozen=True)
class Rules:
    """What makes the protocol safe."""

    swap_needs_the_head: bool = True  # any two commits from one base conflict
    sweep_restages: bool = True  # a loser that sees a sweep since it staged does not reuse its files
    every_sweep_is_written: bool = True  # also when the floor is where it should be already
    list_before_sweep: bool = True  # files staged after the sweep are not on the cleaner's list
    tombstone_ends_writes: bool = True


@dataclass(frozen=True)
class Writer:
    """Adds its own name to the rows of one table."""

    name: str
    table: str
    at: str = "capture"
    strict: bool = False  # the rows it found decided what it writes
    base: Version | None = None
    file: int = 0
    staged_at: int = 0


@dataclass(frozen=True)
class Cleaner:
    """Reclaims what nothing from the floor on needs."""

    at: str = "list"
    rounds: int = 2
    listed: frozenset[int] = frozenset()
    doomed: frozenset[int] = frozenset()


@dataclass(frozen=True)
class World:
    """One state: the chain, the files with their rows, and where everybody stands."""

    chain: tuple[Version, ...]
    files: FrozenMap[int, frozenset[str]]
    writers: tuple[Writer, ...]
    cleaner: Cleaner = Cleaner()
    acknowledged: frozenset[str] = frozenset()

    @property
    def head(self) -> ManifestState:
        """The newest version."""
        return self.chain[-1].state

    def broken(self) -> set[str]:
        """Name the promises that do not hold here."""
        found: set[str] = set()
        states = [one.state for one in self.chain]
        for before, after in pairwise(states):
            if after.version != before.version + 1:
                found.add("versions are one line")
            if after.commit is not before.commit and after.commit.parent != before.head:
                found.add("every commit follows the one before it")
            if before.tombstone is not None and after.commit is not before.commit:
                found.add("nothing is committed after the tombstone")
        for state in states:
            retained = state.version >= self.head.floor
            if retained and any(pin.version not in self.files for pin in state.pins.values()):
                found.add("every file that a retained version needs is there")
        rows = {row for pin in self.head.pins.values() for row in self.files.get(pin.version, ())}
        if not self.acknowledged <= rows:
            found.add("no acknowledged write is lost")
        return found


def start(tables: tuple[str, ...], *, strict: bool) -> World:
    """Return a graph with a genesis commit, and everybody about to begin."""
    genesis = _record("genesis", parent=None, version=1)
    pins = {name: Pin(name, name, "node", number, 0, "genesis") for number, name in enumerate(["a", "b"], 1)}
    state = ManifestState(1, ChainIdentity("main"), genesis, FrozenMap(pins), ("genesis",), (), "genesis")
    writers = tuple(Writer(f"w{n}", table, strict=strict) for n, table in enumerate(tables))
    files: FrozenMap[int, frozenset[str]] = FrozenMap({1: frozenset(), 2: frozenset()})
    return World((version(state),), files, writers)


@dataclass(frozen=True)
class Explored:
    """What an exploration found: states, broken promises, and who was acknowledged in final states."""

    states: int
    broken: frozenset[str]
    ends: frozenset[frozenset[str]]


@cache
def explore(first: World, rules: Rules, wanted: frozenset[str] | None = None) -> Explored:
    """Visit every state that can be reached without passing through a broken one.

    With `wanted`, stop as soon as these promises were seen broken.
    """
    seen, todo = {first}, [first]
    broken: set[str] = set()
    ends: set[frozenset[str]] = set()
    while todo and (wanted is None or not wanted <= broken):
        world = todo.pop()
        problems = world.broken()
        if problems:
            broken |= problems
            continue
        following = list(steps(world, rules))
        if not following:
            ends.add(world.acknowledged)
        fresh = [one for one in following if one not in seen]
        seen.update(fresh)
        todo += fresh
    return Explored(len(seen), frozenset(broken), frozenset(ends))


def steps(world: World, rules: Rules) -> Iterator[World]:
    """Yield the states that one step of one actor leads to."""
    for number, writer in enumerate(world.writers):
        moved = _write(world, writer, rules)
        if moved is not None:
            after, now = moved
            yield replace(after, writers=(*world.writers[:number], now, *world.writers[number + 1 :]))
    yield from _clean(world, rules)
    if world.head.tombstone is None:
        ended, _ = control(world.head, tombstone="the deleter")
        yield replace(world, chain=(*world.chain, version(ended)))


def _write(world: World, me: Writer, rules: Rules) -> tuple[World, Writer] | None:
    gone = world.head.tombstone is not None and rules.tombstone_ends_writes
    match me.at:
        case "capture":
            return world, replace(me, at="refused" if gone else "stage", base=world.chain[-1])
        case "stage":
            assert me.base is not None
            found = world.files.get(me.base.state.pins[me.table].version)
            if found is None:
                return world, replace(me, at="refused")  # the base itself was reclaimed: a typed error
            file = FILES_OF * (1 + world.writers.index(me)) + me.base.state.version
            files = FrozenMap({**world.files, file: found | {me.name}})
            staged = replace(me, at="swap", file=file, staged_at=me.base.state.version)
            return replace(world, files=files), staged
        case "swap":
            assert me.base is not None
            if world.chain[-1] is not me.base and rules.swap_needs_the_head:
                return world, replace(me, at="lost")
            after = _committed(world.head, me)
            acknowledged = world.acknowledged | {me.name}
            return (
                replace(world, chain=(*world.chain, version(after)), acknowledged=acknowledged),
                replace(me, at="done"),
            )
        case "lost":
            return world, replace(me, at="refused") if gone else _go_on(world.chain[-1], me, rules)
    return None


def _go_on(now: Version, me: Writer, rules: Rules) -> Writer:
    assert me.base is not None
    try:
        decision = decide(
            me.base.state,
            now.state,
            staged_at=me.staged_at if rules.sweep_restages else NEVER_SWEPT,
            writes={me.table},
            decided_by={me.table} if me.strict else frozenset(),
            consulted=frozenset(),
            schema_decides=False,
        )
    except StaleVersion:
        return replace(me, at="refused")
    return replace(me, base=now, at="stage" if decision is Decision.PREPARE_AGAIN else "swap")


def _clean(world: World, rules: Rules) -> Iterator[World]:
    me, head = world.cleaner, world.head
    if me.rounds == 0 or head.tombstone is not None:
        return
    everything = frozenset(world.files)
    match me.at:
        case "list":
            yield replace(world, cleaner=replace(me, at="sweep", listed=everything))
        case "sweep":
            floor = head.commit.manifest_version  # keep the newest commit only
            chain = world.chain
            if rules.every_sweep_is_written or head.floor < floor:
                swept, _ = control(head, sweep=Sweep(floor=floor))
                chain = (*chain, version(swept))
            yield replace(world, chain=chain, cleaner=replace(me, at="trace"))
        case "trace":
            listed = me.listed if rules.list_before_sweep else everything
            needed = {
                pin.version
                for kept in world.chain
                if kept.state.version >= head.floor
                for pin in kept.state.pins.values()
            }
            yield replace(world, cleaner=replace(me, at="delete", doomed=listed - needed))
        case "delete":
            left = FrozenMap({file: rows for file, rows in world.files.items() if file not in me.doomed})
            yield replace(world, files=left, cleaner=Cleaner(rounds=me.rounds - 1))


def _committed(head: ManifestState, me: Writer) -> ManifestState:
    """Return the version that a swap makes: on its base, or, without the head key, on whatever is newest."""
    assert me.base is not None
    record = _record(me.name, parent=me.base.state.head, version=head.version + 1)
    pin = replace(me.base.state.pins[me.table], version=me.file, content=me.name)
    state, _ = advance(head, record, {me.table: pin})
    return state


def _record(name: str, *, parent: str | None, version: int) -> CommitRecord:
    kind = CommitKind.GENESIS if parent is None else CommitKind.MUTATION
    return CommitRecord(name, parent, None, "main", "main", kind, None, None, 0, version, "schema")
