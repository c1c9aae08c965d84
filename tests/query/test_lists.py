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


def test_lists_of_large_files_stay_when_a_row_is_replaced(tmp_path: Path) -> None:
    """Files number what is in a list, not the list: it was taken for a column that the file does not have."""
    schema = "node P { k: String @key  n: I64?  tags: [String]? }"
    with og.init(tmp_path / "g.og", schema, durability="os") as graph:
        rows = [{"type": "P", "data": {"k": f"k{i:04d}", "n": i, "tags": [f"{i}"]}} for i in range(6_000)]
        graph.load(rows, mode="append")
        graph.mutate('query w() { update P set { n: 7 } where k = "k0003" }')
    with og.connect(tmp_path / "g.og") as graph:
        tags = graph.query("query q() { match { $p: P } return { $p.k, $p.tags } }").rows
    assert [row["p.tags"] for row in tags] == [[f"{i}"] for i in range(6_000)]
