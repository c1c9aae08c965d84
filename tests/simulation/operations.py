"""What actors do: each operation as a call of the graph, and as what it means to a plain image.

Room    tests.simulation. The name of an operation is the message of its commit, so that every commit can be
        told whose it is.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from omnigraph import Graph
from tests.engine.merge.model import Entity, Image

PEOPLE = ("p0", "p1", "p2", "p3", "p5")
NAMES = ("a", "a", "b", "x")
PERSONS = "query q() { match { $p: Person } return { $p.name, $p.age } }"
PAIRS = "query q() { match { $p: Person $p knows $q } return { $p.name, $q.name } }"


class Refused(Exception):
    """The operation breaks a rule on this image."""


@dataclass(frozen=True)
class Operation:
    """Something that an actor does; `name` is the message of its commit."""

    name: str

    @property
    def branches(self) -> tuple[str, ...]:
        """The names of branches that it depends on."""
        return ()

    def act(self, graph: Graph) -> Any:
        """Do it."""
        raise NotImplementedError

    def __str__(self) -> str:
        fields = (f"{key}={value!r}" for key, value in vars(self).items() if key != "name")
        return f"{self.name} {type(self).__name__}({', '.join(fields)})"


# -- writes of rows ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowWrite(Operation):
    """A write of rows on one branch."""

    branch: str

    @property
    def branches(self) -> tuple[str, ...]:
        """The branch."""
        return (self.branch,)

    def act(self, graph: Graph) -> Any:
        """Do it."""
        return graph.mutate(f"query q() {{ {self.text} }}", branch=self.branch, message=self.name)

    @property
    def text(self) -> str:
        """The statements."""
        raise NotImplementedError

    def effect(self, image: Image) -> Image:
        """Return what comes of an image; the same one if nothing is to be done."""
        raise NotImplementedError


@dataclass(frozen=True)
class Add(RowWrite):
    """Insert somebody, or replace whoever has the name."""

    person: str
    age: int

    @property
    def text(self) -> str:
        """The statement."""
        return f'insert Person {{ name: "{self.person}", age: {self.age} }}'

    def effect(self, image: Image) -> Image:
        """Set the person."""
        return {**image, ("node", self.person): {"age": self.age}}


@dataclass(frozen=True)
class Loaded(Add):
    """The same, as a load."""

    def act(self, graph: Graph) -> Any:
        """Load."""
        rows = [{"type": "Person", "data": {"name": self.person, "age": self.age}}]
        return graph.load(rows, mode="merge", branch=self.branch, message=self.name)


@dataclass(frozen=True)
class Set(RowWrite):
    """Change somebody, if there."""

    person: str
    age: int

    @property
    def text(self) -> str:
        """The statement."""
        return f'update Person set {{ age: {self.age} }} where name = "{self.person}"'

    def effect(self, image: Image) -> Image:
        """Set the age."""
        key = ("node", self.person)
        return {**image, key: {"age": self.age}} if key in image else image


@dataclass(frozen=True)
class Remove(RowWrite):
    """Delete somebody with all edges, if there."""

    person: str

    @property
    def text(self) -> str:
        """The statement."""
        return f'delete Person where name = "{self.person}"'

    def effect(self, image: Image) -> Image:
        """Take the node and its edges away."""
        if ("node", self.person) not in image:
            return image
        return {key: one for key, one in image.items() if key != ("node", self.person) and not self._at(one)}

    def _at(self, one: Entity) -> bool:
        return self.person in (one.get("src"), one.get("dst"))


@dataclass(frozen=True)
class Link(RowWrite):
    """Insert an edge between two who must be there."""

    source: str
    target: str

    @property
    def text(self) -> str:
        """The statement."""
        return f'insert Knows {{ from: "{self.source}", to: "{self.target}", tag: "{self.name}" }}'

    def effect(self, image: Image) -> Image:
        """Add the edge."""
        if ("node", self.source) not in image or ("node", self.target) not in image:
            raise Refused("orphan_edge")
        return {**image, ("edge", self.name): {"src": self.source, "dst": self.target}}


@dataclass(frozen=True)
class Arrive(RowWrite):
    """Insert somebody, a company, and an edge to another: three types in one commit."""

    person: str
    other: str

    @property
    def text(self) -> str:
        """The statements."""
        return (
            f'insert Person {{ name: "{self.person}", age: 0 }} insert Company {{ name: "c.{self.name}" }} '
            f'insert Knows {{ from: "{self.person}", to: "{self.other}", tag: "{self.name}" }}'
        )

    def effect(self, image: Image) -> Image:
        """Add all three."""
        if ("node", self.other) not in {*image, ("node", self.person)}:
            raise Refused("orphan_edge")
        return {
            **image,
            ("node", self.person): {"age": 0},
            ("node", f"c.{self.name}"): {},
            ("edge", self.name): {"src": self.person, "dst": self.other},
        }


@dataclass(frozen=True)
class Increment(RowWrite):
    """Read an age, and write one more if the branch has not moved."""

    person: str

    def act(self, graph: Graph) -> Any:
        """Read, then write."""
        found = graph.query(PERSONS, branch=self.branch)
        ages = {row["p.name"]: row["p.age"] for row in found.rows}
        if self.person not in ages:
            return None
        text = f'update Person set {{ age: {(ages[self.person] or 0) + 1} }} where name = "{self.person}"'
        return graph.mutate(
            f"query q() {{ {text} }}", branch=self.branch, message=self.name, if_commit=found.commit_id
        )

    def effect(self, image: Image) -> Image:
        """Count up."""
        key = ("node", self.person)
        return {**image, key: {"age": (image[key]["age"] or 0) + 1}} if key in image else image


# -- other writes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Merge(Operation):
    """Fold one branch into another."""

    source: str
    branch: str

    @property
    def branches(self) -> tuple[str, ...]:
        """Both."""
        return (self.branch, self.source)

    def act(self, graph: Graph) -> Any:
        """Merge."""
        return graph.merge(self.source, self.branch, message=self.name)


@dataclass(frozen=True)
class Revert(Operation):
    """Undo a commit that the branch had when this began."""

    branch: str
    back: int

    @property
    def branches(self) -> tuple[str, ...]:
        """The branch."""
        return (self.branch,)

    def act(self, graph: Graph) -> Any:
        """Look for the commit, then undo it."""
        commits = graph.commits.list(self.branch, limit=self.back + 1).commits
        return graph.revert(commits[-1].id, branch=self.branch, message=self.name)


@dataclass(frozen=True)
class Widen(Operation):
    """Add a property to the schema."""

    branch: str

    @property
    def branches(self) -> tuple[str, ...]:
        """The branch."""
        return (self.branch,)

    def act(self, graph: Graph) -> Any:
        """Read the schema, and apply it with one more property."""
        text = graph.schema.show(self.branch)
        added = f"age: I64?\n  e{self.name.replace('.', '_')}: String?"
        return graph.schema.apply(text.replace("age: I64?", added), branch=self.branch, message=self.name)


@dataclass(frozen=True)
class Optimize(Operation):
    """Rewrite files and build indexes."""

    branch: str

    @property
    def branches(self) -> tuple[str, ...]:
        """The branch."""
        return (self.branch,)

    def act(self, graph: Graph) -> Any:
        """Optimize."""
        return graph.optimize(branch=self.branch)


@dataclass(frozen=True)
class Cleanup(Operation):
    """Delete what is not kept, without a grace period."""

    keep: int

    def act(self, graph: Graph) -> Any:
        """Clean up."""
        return graph.cleanup(keep=self.keep, grace="0s", dry_run=False)


# -- names -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fork(Operation):
    """Create a branch."""

    new: str
    source: str

    @property
    def branches(self) -> tuple[str, ...]:
        """Where it comes from."""
        return (self.source,)

    def act(self, graph: Graph) -> Any:
        """Create it."""
        return graph.branches.create(self.new, self.source)


@dataclass(frozen=True)
class Drop(Operation):
    """Delete a branch."""

    branch: str

    @property
    def branches(self) -> tuple[str, ...]:
        """The branch."""
        return (self.branch,)

    def act(self, graph: Graph) -> Any:
        """Delete it."""
        return graph.branches.delete(self.branch)


@dataclass(frozen=True)
class Renew(Operation):
    """Delete a branch, and create another one of its name."""

    branch: str
    source: str

    @property
    def branches(self) -> tuple[str, ...]:
        """Both."""
        return (self.branch, self.source)

    @property
    def new(self) -> str:
        """The name of the new one."""
        return self.branch

    def act(self, graph: Graph) -> Any:
        """Delete it, then create it."""
        graph.branches.delete(self.branch)
        return graph.branches.create(self.branch, self.source)


@dataclass(frozen=True)
class Rename(Operation):
    """Rename a branch."""

    branch: str
    new: str

    @property
    def branches(self) -> tuple[str, ...]:
        """The branch."""
        return (self.branch,)

    def act(self, graph: Graph) -> Any:
        """Rename it."""
        return graph.branches.rename(self.branch, self.new)


@dataclass(frozen=True)
class Tag(Operation):
    """Tag the head of a branch."""

    tag: str
    branch: str

    @property
    def branches(self) -> tuple[str, ...]:
        """The branch."""
        return (self.branch,)

    def act(self, graph: Graph) -> Any:
        """Create the tag."""
        return graph.tags.create(self.tag, branch=self.branch)


@dataclass(frozen=True)
class Untag(Operation):
    """Delete a tag."""

    tag: str

    def act(self, graph: Graph) -> Any:
        """Delete it."""
        return graph.tags.delete(self.tag)


# -- reads -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What a read answered: the commit that it names, and the part of the image that it read."""

    commit_id: str
    part: dict[str, Any]


@dataclass(frozen=True)
class Read(Operation):
    """Query the head of a branch: people, or edges by following them."""

    branch: str
    pairs: bool

    @property
    def branches(self) -> tuple[str, ...]:
        """The branch."""
        return (self.branch,)

    def act(self, graph: Graph) -> Seen:
        """Ask."""
        return read_pairs(graph, branch=self.branch) if self.pairs else read_people(graph, branch=self.branch)


@dataclass(frozen=True)
class ReadPast(Operation):
    """Query an earlier commit of a branch."""

    branch: str
    back: int

    @property
    def branches(self) -> tuple[str, ...]:
        """The branch."""
        return (self.branch,)

    def act(self, graph: Graph) -> Seen:
        """Look for the commit, then ask."""
        commits = graph.commits.list(self.branch, limit=self.back + 1).commits
        return read_people(graph, at=commits[-1].id)


def read_people(graph: Graph, **where: Any) -> Seen:
    """Return everybody's age."""
    found = graph.query(PERSONS, **where)
    return Seen(found.commit_id, {"people": sorted((row["p.name"], row["p.age"]) for row in found.rows)})


def read_pairs(graph: Graph, **where: Any) -> Seen:
    """Return who knows whom."""
    found = graph.query(PAIRS, **where)
    return Seen(found.commit_id, {"pairs": sorted((row["p.name"], row["q.name"]) for row in found.rows)})


def parts_of(image: Image) -> dict[str, Any]:
    """Return what reads answer of an image."""
    people = ((key[1], one["age"]) for key, one in image.items() if key[0] == "node" and "age" in one)
    pairs = {(one["src"], one["dst"]) for key, one in image.items() if key[0] == "edge"}  # each is one match
    return {"people": sorted(people), "pairs": sorted(pairs)}


# -- programs ----------------------------------------------------------------------------------------


class Vocabulary:
    """What the operations of one seed are about: few names, and some sorts of work more often than others."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._branches = draw.choice((("main",), ("a",), ("a",), ("main", "a"), ("main", "a", "b")))
        self._people = draw.sample(PEOPLE, draw.randint(1, 4))
        usual = (8, 4, 8, 8, 9, 6, 8, 8, 4, 3, 4, 12, 4, 4, 4, 2, 3, 1, 5, 4, 6)
        self._shares = [share * draw.choice((0, 0, 1, 6)) for share in usual]
        self._shares[0] += 1  # whatever was drawn, there is something to do

    def program(self, actor: int, length: int) -> list[Operation]:
        """Return what an actor does."""
        return [self._operation(f"o{actor}.{number}") for number in range(length)]

    def _operation(self, name: str) -> Operation:
        draw = self._draw
        branch, person, other = (
            draw.choice(self._branches),
            draw.choice(self._people),
            draw.choice(self._people),
        )
        source, new, tag = draw.choice(("a", "b", "main")), draw.choice(NAMES), draw.choice(("t1", "t2"))
        number = draw.randrange(100, 1000)
        choices = (
            Add(name, branch, draw.choice((f"n{number}", person)), number),
            Loaded(name, branch, person, number),
            Set(name, branch, person, number),
            Remove(name, branch, person),
            Link(name, branch, person, other),
            Arrive(name, branch, f"n{number}", other),
            Increment(name, branch, person),
            Merge(name, source, "main" if source != "main" else "a"),
            Revert(name, branch, draw.randrange(3)),
            Widen(name, branch),
            Optimize(name, branch),
            Cleanup(name, draw.randrange(3)),
            Fork(name, new, source),
            Drop(name, draw.choice(("a", "a", "b"))),
            Renew(name, draw.choice(("a", "a", "b")), "main"),
            Rename(name, draw.choice(("a", "b")), new),
            Tag(name, tag, branch),
            Untag(name, tag),
            Read(name, branch, pairs=True),
            ReadPast(name, branch, draw.randrange(4)),
            Read(name, branch, pairs=False),
        )
        return draw.choices(choices, self._shares)[0]
