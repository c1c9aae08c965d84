"""Lists as grouping keys: equal lists are one group, and groups of one size come in list order."""

from __future__ import annotations

from pathlib import Path

import omnigraph as og


def test_groups_by_a_list(tmp_path: Path) -> None:
    tags = {"a": ["x", "y"], "b": ["x", "y"], "c": ["x"], "d": None, "e": []}
    with og.init(
        tmp_path / "g.og", "node P { name: String @key  tags: [String]? }", durability="os"
    ) as graph:
        graph.load(
            [{"type": "P", "data": {"name": name, "tags": found}} for name, found in tags.items()],
            mode="append",
        )
        grouped = graph.query(
            "query q() { match { $p: P } return { $p.tags as tags, count($p) as n } order { n desc } }"
        )

    assert [(row["tags"], row["n"]) for row in grouped] == [(["x", "y"], 2), (None, 1), ([], 1), (["x"], 1)]
