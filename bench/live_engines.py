"""The engines that `live.py` compares, and what each is asked in its own language.

Kuzu and Ladybug cannot be imported into one process: whoever uses this works in a process for each engine.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from live_data import Facts

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
edge Knows: Person -> Person { since: I32? }
"""
UNIQUE_SCHEMA = """
node Person { name: String @key  age: I32?  city: String?  email: String? @unique }
edge Knows: Person -> Person { since: I32? }
"""
RUN_EACH_TIME = 8 << 30
Params = dict[str, Any]
ONE = "$p: Person { name: $k }"
FROM_ONE = "MATCH (p:Person {name: $k})"


@dataclass(frozen=True)
class Question:
    """One query in both languages, with the parameters of its n-th run: a repeated answer proves little."""

    ours: str
    peer: str
    params: Callable[[Facts, int], Params] = lambda _facts, _n: {}


def _key(facts: Facts, n: int) -> Params:
    return {"k": facts.keys[n % len(facts.keys)]}


def _pair(facts: Facts, n: int) -> Params:
    a, b = facts.pairs[n % len(facts.pairs)]
    return {"a": a, "b": b}


QUESTIONS = {
    "key": Question(
        f"query q($k: String) {{ match {{ {ONE} }} return {{ $p.name, $p.age, $p.city }} }}",
        f"{FROM_ONE} RETURN p.name, p.age, p.city",
        _key,
    ),
    # Texts that differ in a name: a plan that was kept does not help. `#` is the number of the run.
    "key, new text": Question(
        f"query q($k: String) {{ match {{ {ONE} }} return {{ $p.name, $p.age, $p.city as c# }} }}",
        f"{FROM_ONE} RETURN p.name, p.age, p.city AS c#",
        _key,
    ),
    "1 hop, new text": Question(
        f"query q($k: String) {{ match {{ {ONE} $p knows $f }} return {{ $f.name, $f.age as c# }} }}",
        f"{FROM_ONE}-[:Knows]->(f:Person) RETURN f.name, f.age AS c#",
        _key,
    ),
    "1 hop": Question(
        f"query q($k: String) {{ match {{ {ONE} $p knows $f }} return {{ $f.name, $f.age }} }}",
        f"{FROM_ONE}-[:Knows]->(f:Person) RETURN f.name, f.age",
        _key,
    ),
    # Where the peer finds walks and we find nodes, its query says DISTINCT and leaves out the start.
    "2 hops": Question(
        f"query q($k: String) {{ match {{ {ONE} $p knows{{1,2}} $f }} return {{ $f.name, $f.age }} }}",
        f"{FROM_ONE}-[:Knows*1..2]->(f:Person) WHERE f.name <> $k RETURN DISTINCT f.name, f.age",
        _key,
    ),
    "3 hops": Question(
        f"query q($k: String) {{ match {{ {ONE} $p knows{{1,3}} $f }} return {{ $f.name, $f.age }} }}",
        f"{FROM_ONE}-[:Knows*1..3]->(f:Person) WHERE f.name <> $k RETURN DISTINCT f.name, f.age",
        _key,
    ),
    "2 hops, filter, top": Question(
        f"query q($k: String) {{ match {{ {ONE} $p knows $m  $m knows $f  $f.age > 50 }} "
        "return distinct { $f.name as name, $f.age as age } order { age desc, name } limit 10 }",
        f"{FROM_ONE}-[:Knows]->(:Person)-[:Knows]->(f:Person) WHERE f.age > 50 "
        "RETURN DISTINCT f.name AS name, f.age AS age ORDER BY age DESC, name LIMIT 10",
        _key,
    ),
    "group": Question(
        "query q($age: I32) { match { $a: Person $a knows $b  $a.age > $age } "
        "return { $b.city as city, count($a) as n } order { n desc, city } limit 10 }",
        "MATCH (a:Person)-[:Knows]->(b:Person) WHERE a.age > $age "
        "RETURN b.city AS city, count(a) AS n ORDER BY n DESC, city LIMIT 10",
        lambda _facts, n: {"age": 90 - n % 3},
    ),
    "two-hop count": Question(
        "query q() { match { $a knows $b  $b knows $c } return { count($c) as n } }",
        "MATCH (:Person)-[:Knows]->(:Person)-[:Knows]->(c:Person) RETURN count(*) AS n",
    ),
    "three-hop count": Question(
        "query q() { match { $a knows $b  $b knows $c  $c knows $d } return { count($d) as n } }",
        "MATCH (:Person)-[:Knows]->(:Person)-[:Knows]->(:Person)-[:Knows]->(d:Person) RETURN count(*) AS n",
    ),
    "triangles": Question(
        "query q() { match { $a knows $b  $b knows $c  $a knows $c } return { count($c) as n } }",
        "MATCH (a:Person)-[:Knows]->(b:Person)-[:Knows]->(c:Person), (a)-[:Knows]->(c) RETURN count(*) AS n",
    ),
    "cycles of three": Question(
        "query q() { match { $a knows $b  $b knows $c  $c knows $a } return { count($c) as n } }",
        "MATCH (a:Person)-[:Knows]->(b:Person)-[:Knows]->(c:Person), (c)-[:Knows]->(a) RETURN count(*) AS n",
    ),
    "shortest path": Question(
        "query q($a: String, $b: String) { match { $a1: Person { name: $a }  $b1: Person { name: $b } } "
        "return { shortest($a1 knows{1,6} $b1) as path } }",
        "MATCH p = (a:Person {name: $a})-[:Knows* SHORTEST 1..6]->(b:Person {name: $b}) RETURN length(p)",
        _pair,
    ),
    # For reader threads, and of no interest beside a peer:
    "2 hops from the hub": Question(
        f"query q($k: String) {{ match {{ {ONE} $p knows{{1,2}} $f }} return {{ count($f) as n }} }}",
        f"{FROM_ONE}-[:Knows*1..2]->(f:Person) WHERE f.name <> $k RETURN count(DISTINCT f.name)",
        lambda facts, _n: {"k": facts.hub},
    ),
}
LIVE = ("key", "1 hop", "2 hops", "group", "two-hop count")  # asked first in a process, and after a write


@dataclass(frozen=True)
class Write:
    """A change of one row, in both languages."""

    ours: str
    peer: str
    params: Callable[[Facts, int], Params]


def _edge(facts: Facts, n: int) -> Params:
    keys, known = len(facts.keys), len(facts.persons) // 2
    return {"a": facts.keys[n % keys], "b": facts.persons[-1 - n // keys % known]}


def _tie(facts: Facts, n: int) -> Params:
    a, b = facts.ties[n % len(facts.ties)]
    return {"a": a, "b": b}


def _person(facts: Facts, n: int) -> Params:
    return {"k": facts.persons[n % (len(facts.persons) // 4)]}


def _victim(facts: Facts, n: int) -> Params:
    quarter = len(facts.persons) // 4
    return {"k": facts.persons[quarter + n % quarter]}


WRITES = {
    "edge insert": Write(
        "query w($a: String, $b: String) { insert Knows { from: $a, to: $b, since: 2026 } }",
        "MATCH (a:Person {name: $a}), (b:Person {name: $b}) CREATE (a)-[:Knows {since: 2026}]->(b)",
        _edge,
    ),
    "node insert": Write(
        'query w($k: String) { insert Person { name: $k, age: 30, city: "city-001" } }',
        "CREATE (:Person {name: $k, age: 30, city: 'city-001'})",
        lambda _facts, n: {"k": f"new-{n}"},
    ),
    "node update": Write(
        "query w($k: String) { update Person set { age: 95 } where name = $k }",
        "MATCH (p:Person {name: $k}) SET p.age = 95",
        _person,
    ),
    "edge delete": Write(
        "query w($a: String, $b: String) { delete Knows where from = $a and to = $b }",
        "MATCH (:Person {name: $a})-[r:Knows]->(:Person {name: $b}) DELETE r",
        _tie,
    ),
    "node delete": Write(
        "query w($k: String) { delete Person where name = $k }",
        "MATCH (p:Person {name: $k}) DETACH DELETE p",
        _victim,
    ),
}


class Engine(Protocol):
    """A graph that is open."""

    def ask(self, question: Question, params: Params) -> Any:
        """Run a query and take its whole answer, in the quickest form there is."""
        ...

    def rows(self, question: Question, params: Params) -> list[list[Any]]:
        """Run a query and return its rows."""
        ...

    def write(self, change: Write, params: Params) -> None:
        """Commit a change."""
        ...


class Ours:
    """OmniGraph; an answer is an Arrow table.

    A request with a limit of its own is run each time; else small answers are kept for their version, and
    asking again would measure nothing but that.
    """

    def __init__(self, path: str, *, kept: bool = False, **options: Any) -> None:
        import omnigraph as og

        self.graph = og.connect(path, **options)
        self._limit = None if kept else RUN_EACH_TIME

    def ask(self, question: Question, params: Params) -> Any:
        return self.graph.query(question.ours, params, memory_bytes=self._limit).table

    def rows(self, question: Question, params: Params) -> list[list[Any]]:
        return [list(row.values()) for row in self.graph.query(question.ours, params)]

    def write(self, change: Write, params: Params) -> None:
        self.graph.mutate(change.ours, params)


class Peer:
    """Ladybug or Kuzu, with a plan that it keeps for each text.

    An answer is an Arrow table as ours is (in chunks large enough that it is one), or with `lists` Python's
    lists where that is quicker: few rows.
    """

    def __init__(self, name: str, path: str, *, lists: bool = False) -> None:
        self._connection = connect_peer(name, path)
        self._lists = lists

    def ask(self, question: Question, params: Params) -> Any:
        answer = self._connection.execute(question.peer, params)
        if self._lists and answer.get_num_tuples() < 32:
            return answer.get_all()
        return answer.get_as_arrow(1_000_000)

    def rows(self, question: Question, params: Params) -> list[list[Any]]:
        found: list[list[Any]] = self._connection.execute(question.peer, params).get_all()
        return found

    def write(self, change: Write, params: Params) -> None:
        self._connection.execute(change.peer, params)


def connect_peer(name: str, path: str) -> Any:
    """Open a database of a peer."""
    if name == "kuzu":
        import kuzu

        return kuzu.Connection(kuzu.Database(path))
    import ladybug

    return ladybug.Connection(ladybug.Database(path))


def connect(name: str, path: str, **options: Any) -> Engine:
    """Open a graph of either engine."""
    return Ours(path, **options) if name == "ours" else Peer(name, path, **options)


def load(name: str, path: str, files: dict[str, str], *, unique: bool = False) -> float:
    """Make a graph of persons; return the seconds of loading."""
    if name == "ours":
        import omnigraph as og

        with og.init(path, UNIQUE_SCHEMA if unique else SCHEMA) as graph:
            started = time.perf_counter()
            graph.load(files, mode="append")
            return time.perf_counter() - started
    connection = connect_peer(name, path)
    connection.execute("CREATE NODE TABLE Person(name STRING, age INT32, city STRING, PRIMARY KEY(name))")
    connection.execute("CREATE REL TABLE Knows(FROM Person TO Person, since INT32)")
    started = time.perf_counter()
    connection.execute(f"COPY Person FROM '{files['Person']}'")
    connection.execute(f"COPY Knows FROM '{files['Knows']}'")
    return time.perf_counter() - started


def digest(question: str, rows: list[list[Any]]) -> str:
    """Return what the answers of two engines are compared by; a path by its length."""
    if question == "shortest path":
        return str(
            [len(path) - 1 if isinstance(path, list) else path for (path,) in rows if path is not None]
        )
    text = repr(sorted(map(repr, rows)))
    return text if len(rows) == 1 else f"{len(rows)} rows, {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def size_on_disk(path: str) -> int:
    """Return the bytes of a graph's files."""
    place = Path(path)
    if place.is_dir():
        return sum(one.stat().st_size for one in place.rglob("*") if one.is_file())
    return sum(one.stat().st_size for one in place.parent.glob(place.name + "*"))
