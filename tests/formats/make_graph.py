"""Write the graph that later versions must open: python -m tests.formats.make_graph NAME.

Run it once for each storage format, before the code that writes the format changes. It leaves in this folder
NAME.tar.gz, the graph, and NAME.json, its answers of that day. What is there is never written again.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import omnigraph as og
from omnigraph import Graph
from tests.formats.questions import answer, is_refusal, questions

HERE = Path(__file__).parent
FIRST = """
node Document {
    slug: String @key
    text: String? @index
    place: Vector(2)? @index
    pages: I32? @index
    isbn: String? @unique
    tags: [String]?
    state: enum(draft, done)?
    day: Date?
    moment: DateTime?
    rating: F64?
}
node Writer { born: I32?  note: String? }
node Scrap { slug: String @key }
edge Cites: Document -> Document { since: I32?  @unique(src, dst) }
edge WroteBy: Document -> Writer @card(0..2)
"""
WIDER = FIRST.replace("pages: I32?", "pages: I64?")
RENAMED = WIDER.replace("born: I32?", 'year: I32? @rename_from("born")')
GROWN = RENAMED.replace("rating: F64?", 'rating: F64?  lang: String @default("en")')
WITHOUT_SCRAP = RENAMED.replace("node Scrap { slug: String @key }\n", "")
REPEATED_LOAD = [{"type": "Document", "data": {"slug": "d9", "text": "loaded once", "pages": 9}}]
REPEATED_CHANGE = 'query q() { insert Document { slug: "d8", text: "inserted once" } }'


def document(number: int, text: str, **data: Any) -> dict[str, Any]:
    """Return a document as a record of a load."""
    return {"type": "Document", "data": {"slug": f"d{number}", "text": text, **data}}


def writer(name: str, **data: Any) -> dict[str, Any]:
    """Return a writer: nodes without a key have ids."""
    return {"type": "Writer", "data": {"id": name, **data}}


def edge(name: str, kind: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    """Return an edge as a record of a load."""
    return {"edge": kind, "from": source, "to": target, "data": {"id": name, **data}}


DOCUMENTS = [
    document(1, "Lakes of the north", place=[0, 1], pages=10, isbn="a", tags=["x", "y"], state="done"),
    document(2, "A forest by the lake", place=[1, 0], pages=20, day="2024-02-29", tags=[]),
    document(3, "Dry land", place=[1, 1], isbn="c", moment="2024-02-29T12:30:15.250Z", rating=0.1),
    document(4, "Überraschung, 水", pages=-1, rating=-0.0),
]
EDGES = [
    edge("c12", "Cites", "d1", "d2", since=2001),
    edge("c23", "Cites", "d2", "d3"),
    edge("w1", "WroteBy", "d1", "ann"),
    edge("w2", "WroteBy", "d2", "bo"),
]


def write(graph: Graph) -> None:
    """Make the history, through the public calls only."""
    people = [writer("ann", born=1950, note="first"), writer("bo")]
    scraps = [{"type": "Scrap", "data": {"slug": slug}} for slug in ("s1", "s2")]
    graph.load([*DOCUMENTS, *people, *scraps, *EDGES], mode="append", actor="ann", message="the first ones")
    graph.ensure_indexes()
    graph.tags.create("v1", actor="ann", message="as it began")

    graph.branches.create("review")
    graph.mutate('query q() { update Document set { pages: 11 } where slug = "d1" }', branch="review")
    graph.mutate('query q() { delete Document where slug = "d2" }', branch="review", actor="bo")
    graph.load([document(5, "Only in review", place=[0, 0])], mode="merge", branch="review")
    graph.tags.create("seen", branch="review")

    graph.mutate('query q() { update Document set { rating: 2.5 } where slug = "d1" }', actor="ann")
    graph.load(REPEATED_LOAD, mode="append", idempotency_key="load-1", actor="ann")
    graph.mutate(REPEATED_CHANGE, idempotency_key="change-1", actor="bo")
    graph.merge("review", message="what the review said")
    graph.schema.apply(WIDER, message="more pages")
    graph.mutate('query q($n: I64) { update Document set { pages: $n } where slug = "d3" }', n=1 << 40)
    graph.schema.apply(RENAMED)
    graph.load([writer("bo", year=1960)], mode="merge")
    graph.tags.create("v2")

    graph.branches.create("grown")
    graph.schema.apply(GROWN, branch="grown", message="languages")
    graph.load([document(6, "Ein See", lang="de"), document(7, "A lake")], mode="append", branch="grown")
    graph.branches.create("grown/deeper", from_="grown")
    graph.mutate('query q() { update Document set { lang: "fr" } where slug = "d7" }', branch="grown/deeper")
    graph.branches.create("past", at="v1")
    graph.mutate('query q() { insert Writer { born: 1, note: "from the past" } }', branch="past")
    graph.branches.create("gone")
    graph.branches.delete("gone")

    graph.schema.apply(WITHOUT_SCRAP, message="no scraps")
    undone = graph.mutate('query q() { delete Document where slug = "d4" }').commit_id
    graph.load([document(1, "Lakes of the north", pages=12, isbn="a")], mode="merge")
    assert undone is not None
    graph.revert(undone, message="d4 was right")
    graph.ensure_indexes()


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def main(name: str) -> None:
    """Write a graph, ask it, and pack both."""
    archive = HERE / f"{name}.tar.gz"
    if archive.exists():
        raise SystemExit(f"{archive.name} is kept as it is: choose another name")
    with TemporaryDirectory() as folder:
        place = Path(folder) / "graph.og"
        with og.init(place, FIRST) as graph:
            write(graph)
        with og.connect(place) as graph:
            asked = {json.dumps(question, ensure_ascii=False): question for question in questions(graph)}
            answers = [{**question, "answer": answer(graph, question)} for question in asked.values()]
        with tarfile.open(archive, "w:gz", compresslevel=9) as packed:
            packed.add(place, "graph.og", filter=_without_owner)
    kept = [one for one in answers if not is_refusal(one["answer"])]  # a failure is no promise
    lines = (json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in kept)
    (HERE / f"{name}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
