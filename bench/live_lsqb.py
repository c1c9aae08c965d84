"""Nine counts over a social network, in the shape of the public LSQB benchmark; part of `live.py`.

The network is our own: persons in cities of countries know each other (both ways count), have interests,
write messages with tags (a third are posts, the others reply to an earlier message), like messages, and are
members of forums that hold the posts. Popularity is skewed. The two engines must count the same; where a hop
is undirected the pair is stored once. Numbers 7 to 9 have optional and negated edges.

    python bench/live_lsqb.py ENGINE PATH NUMBER RUNS     one question in a process of its own
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from live_engines import Question, connect, connect_peer

FORMAT = "2"
COUNTRIES, CITIES, TAGS, CLASSES = 20, 300, 500, 30
NODES = ("Country", "City", "TagClass", "Tag", "Person", "Forum", "Message")
EDGES = {
    "PartOf": ("City", "Country"),
    "LivesIn": ("Person", "City"),
    "Knows": ("Person", "Person"),
    "Interest": ("Person", "Tag"),
    "HasType": ("Tag", "TagClass"),
    "Member": ("Forum", "Person"),
    "Holds": ("Forum", "Message"),
    "Creator": ("Message", "Person"),
    "ReplyOf": ("Message", "Message"),
    "HasTag": ("Message", "Tag"),
    "Likes": ("Person", "Message"),
}
SCHEMA = "\n".join(
    [
        *(f"node {name} {{ name: String @key }}" for name in NODES),
        *(f"edge {name}: {a} -> {b}" for name, (a, b) in EDGES.items()),
    ]
)


def _count(match: str, variable: str) -> str:
    return f"query q() {{ match {{ {match} }} return {{ count(${variable}) as n }} }}"


QUESTIONS = {
    "1 long chain": Question(
        _count(
            "$co: Country $ci: City $p: Person $ci partOf $co  $p livesIn $ci  $f member $p  "
            "$f holds $m  $c replyOf $m  $c hasTag $t  $t hasType $k",
            "k",
        ),
        "MATCH (:Country)<-[:PartOf]-(:City)<-[:LivesIn]-(:Person)<-[:Member]-(:Forum)-[:Holds]->"
        "(:Message)<-[:ReplyOf]-(:Message)-[:HasTag]->(:Tag)-[:HasType]->(:TagClass) RETURN count(*)",
    ),
    "2 replies to friends": Question(
        _count("$c replyOf $m  $c creator $a  $m creator $b  $a <knows> $b", "c"),
        "MATCH (a:Person)-[:Knows]-(b:Person), "
        "(a)<-[:Creator]-(:Message)-[:ReplyOf]->(:Message)-[:Creator]->(b) RETURN count(*)",
    ),
    "3 triangles of one country": Question(
        _count(
            "$a <knows> $b  $b <knows> $c  $a <knows> $c  $a livesIn $x  $b livesIn $y  $c livesIn $z  "
            "$x partOf $k  $y partOf $k  $z partOf $k",
            "k",
        ),
        "MATCH (a:Person)-[:Knows]-(b:Person)-[:Knows]-(c:Person)-[:Knows]-(a), "
        "(a)-[:LivesIn]->(:City)-[:PartOf]->(k:Country), (b)-[:LivesIn]->(:City)-[:PartOf]->(k), "
        "(c)-[:LivesIn]->(:City)-[:PartOf]->(k) RETURN count(*)",
    ),
    "4 star of a message": Question(
        _count("$m: Message $m hasTag $t  $m creator $p  $l likes $m  $c replyOf $m", "c"),
        "MATCH (:Tag)<-[:HasTag]-(m:Message)-[:Creator]->(:Person), (m)<-[:Likes]-(:Person), "
        "(m)<-[:ReplyOf]-(:Message) RETURN count(*)",
    ),
    "5 tags of a reply": Question(
        _count("$c replyOf $m  $m hasTag $t  $c hasTag $u  $t.name != $u.name", "u"),
        "MATCH (t:Tag)<-[:HasTag]-(:Message)<-[:ReplyOf]-(:Message)-[:HasTag]->(u:Tag) "
        "WHERE t.name <> u.name RETURN count(*)",
    ),
    "6 interests two away": Question(
        _count("$a <knows> $b  $b <knows> $c  $c interest $t  $a.name != $c.name", "t"),
        "MATCH (a:Person)-[:Knows]-(:Person)-[:Knows]-(c:Person)-[:Interest]->(:Tag) "
        "WHERE a.name <> c.name RETURN count(*)",
    ),
    "7 optional star": Question(
        _count(
            "$m: Message $m hasTag $t  $m creator $p  optional { $l likes $m }  optional { $c replyOf $m }",
            "m",
        ),
        "MATCH (:Tag)<-[:HasTag]-(m:Message)-[:Creator]->(:Person) OPTIONAL MATCH (m)<-[:Likes]-(:Person) "
        "OPTIONAL MATCH (m)<-[:ReplyOf]-(:Message) RETURN count(*)",
    ),
    "8 new tags of a reply": Question(
        _count("$c replyOf $m  $m hasTag $t  $c hasTag $u  $t.name != $u.name  not { $c hasTag $t }", "u"),
        "MATCH (t:Tag)<-[:HasTag]-(:Message)<-[:ReplyOf]-(c:Message)-[:HasTag]->(u:Tag) "
        "WHERE t.name <> u.name AND NOT (c)-[:HasTag]->(t) RETURN count(*)",
    ),
    "9 interests of strangers two away": Question(
        _count(
            "$a <knows> $b  $b <knows> $c  $c interest $t  $a.name != $c.name  not { $a <knows> $c }", "t"
        ),
        "MATCH (a:Person)-[:Knows]-(:Person)-[:Knows]-(c:Person)-[:Interest]->(:Tag) "
        "WHERE a.name <> c.name AND NOT (a)-[:Knows]-(c) RETURN count(*)",
    ),
}


def make(cache: Path, persons: int) -> dict[str, str]:
    """Write the network as one Parquet file for each type; return the files."""
    folder = cache / f"lsqb-{persons}"
    files = {name: str(folder / f"{name}.parquet") for name in (*NODES, *EDGES)}
    if (folder / "format").is_file() and (folder / "format").read_text() == FORMAT:
        return files
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    random = np.random.default_rng(23)
    messages, forums = persons * 30, persons // 2
    counts = dict(zip(NODES, (COUNTRIES, CITIES, CLASSES, TAGS, persons, forums, messages), strict=True))
    posts = messages // 3  # the first third; each of the others replies to a message before it
    ordinal = np.arange(messages)
    replies = ordinal[posts:]

    def one_of(kind: str, many: int) -> npt.NDArray[np.int64]:
        return random.integers(0, counts[kind], many)

    def popular(kind: str, many: int, power: float = 0.6) -> npt.NDArray[np.int64]:
        return (counts[kind] * random.power(power, many)).astype(np.int64)

    def persons_of(many: int) -> npt.NDArray[np.int64]:
        return _spread(popular("Person", many), persons)

    known = np.stack([persons_of(persons * 10), one_of("Person", persons * 10)])
    drawn = {
        "PartOf": (np.arange(CITIES), one_of("Country", CITIES)),
        "LivesIn": (np.arange(persons), popular("City", persons)),
        "Knows": (known.min(axis=0), known.max(axis=0)),
        "Interest": (np.repeat(np.arange(persons), 4), popular("Tag", persons * 4)),
        "HasType": (np.arange(TAGS), one_of("TagClass", TAGS)),
        "Member": (one_of("Forum", persons * 6), persons_of(persons * 6)),
        "Holds": (popular("Forum", posts), ordinal[:posts]),
        "Creator": (ordinal, persons_of(messages)),
        "ReplyOf": (replies, (replies * random.power(0.6, len(replies))).astype(np.int64)),
        "HasTag": (one_of("Message", messages * 3 // 2), popular("Tag", messages * 3 // 2)),
        "Likes": (persons_of(messages), popular("Message", messages, 0.8)),
    }
    names = {kind: pa.array([f"{kind}-{n}" for n in range(count)]) for kind, count in counts.items()}
    for kind in NODES:
        pq.write_table(pa.table({"name": names[kind]}), files[kind])
    for edge, (a, b) in EDGES.items():
        source, target = drawn[edge]
        if a == b:
            source, target = source[source != target], target[source != target]
        packed = np.sort(source * counts[b] + target)  # each pair once: walks are counted as pairs are
        packed = random.permutation(packed[np.concatenate([[True], packed[1:] != packed[:-1]])])
        ends = {
            "from": names[a].take(pa.array(packed // counts[b])),
            "to": names[b].take(pa.array(packed % counts[b])),
        }
        pq.write_table(pa.table(ends), files[edge])
    (folder / "format").write_text(FORMAT)
    return files


def _spread(ranks: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Give the popular any place among the keys: the same for every kind of edge."""
    places: npt.NDArray[np.int64] = np.random.default_rng(5).permutation(count)[ranks]
    return places


def load(engine: str, path: str, files: dict[str, str]) -> float:
    """Make the graph; return the seconds of loading."""
    if engine == "ours":
        import omnigraph as og

        with og.init(path, SCHEMA) as graph:
            started = time.perf_counter()
            graph.load(files, mode="append")
            return time.perf_counter() - started
    connection = connect_peer(engine, path)
    for name in NODES:
        connection.execute(f"CREATE NODE TABLE {name}(name STRING, PRIMARY KEY(name))")
    for name, (a, b) in EDGES.items():
        connection.execute(f"CREATE REL TABLE {name}(FROM {a} TO {b})")
    started = time.perf_counter()
    for name in (*NODES, *EDGES):
        connection.execute(f"COPY {name} FROM '{files[name]}'")
    return time.perf_counter() - started


def ask(engine: str, path: str, name: str, runs: int) -> dict[str, Any]:
    """Ask one question until it is warm, then time it."""
    graph = connect(engine, path)
    question = QUESTIONS[name]
    try:
        ((found,),) = graph.rows(question, {})
        times: list[float] = []
        while len(times) < runs and sum(times) < 20:
            started = time.perf_counter()
            graph.ask(question, {})
            times.append(time.perf_counter() - started)
    except Exception as error:  # noqa: BLE001 - an engine that gives up is a finding of the table
        return {"ms": None, "answer": f"{type(error).__name__}: {error}"[:120]}
    return {"ms": median(times) * 1000, "answer": found}


def main() -> None:
    """Load, or ask one question."""
    engine, path, what, given = sys.argv[1:5]
    if what == "load":
        print(json.dumps({"seconds": load(engine, path, json.loads(given))}))
    else:
        print(json.dumps(ask(engine, path, what, int(given))))


if __name__ == "__main__":
    main()
