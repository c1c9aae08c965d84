"""A small library to run pipelines on: a graph that is copied, a folder with sources, pipeline files."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.pipeline.declared import Pipeline, parse_pipeline

SCHEMA = """
node Book { isbn: String @key  title: String  pages: U32?  added: DateTime? }
node Reader { name: String @key  born: Date? }
node Shelf { number: I64 @key }
edge Borrowed: Reader -> Book { due: Date? }
edge StandsOn: Book -> Shelf
"""
BOOKS = "isbn,title,pages,updated\n1,Odes,120,2026-01-01\n2,Emma,384,2026-01-02\n"
BASIC = """\
sources:
  raw: {format: csv, path: books.csv, options: {header: true}}
transforms:
  books: {sql: "select isbn, title, cast(pages as int) as pages from raw"}
targets:
  - {type: Book, from: books, mode: merge}
"""


def make_template(folder: Path) -> Path:
    """Make the graph that tests copy: the schema, and one reader."""
    path = folder / "library.og"
    with og.init(path, SCHEMA, durability="os") as graph:
        graph.load([{"type": "Reader", "data": {"name": "Ada"}}], mode="append")
    return path


@dataclass(frozen=True)
class Library:
    """A folder with a graph and the sources of a pipeline."""

    folder: Path
    graph: og.Graph

    @classmethod
    def at(cls, folder: Path, template: Path) -> Library:
        """Make a library in an empty folder."""
        shutil.copytree(template, folder / "library.og")
        found = cls(folder, og.connect(folder / "library.og", durability="os"))
        found.write("books.csv", BOOKS)
        return found

    def write(self, name: str, text: str) -> Path:
        """Write a file into the folder."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def pipeline(self, text: str = BASIC, name: str = "p") -> Pipeline:
        """Read a pipeline that stands in the folder."""
        self.write(f"{name}.yaml", text)
        return parse_pipeline(text, file=f"{name}.yaml", folder=self.folder)

    def rows(self, type_name: str = "Book", branch: str = "main", **where: Any) -> dict[str, dict[str, Any]]:
        """Return the nodes of a type by id."""
        table = self.graph.nodes(type_name, branch=branch, **where).to_arrow()
        return {row["id"]: row for row in table.to_pylist()}

    def titles(self, branch: str = "main") -> dict[str, str]:
        """Return the titles of all books by id."""
        return {key: row["title"] for key, row in self.rows("Book", branch).items()}

    def commits(self, branch: str = "main") -> int:
        """Return how many commits a branch has."""
        return len(self.graph.commits.list(branch))
