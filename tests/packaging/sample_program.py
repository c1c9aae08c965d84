"""A program as users write it: mypy and pyright check it as strictly as they can, and a test runs it.

Room    tests. Imports nothing but the public face.
"""

from __future__ import annotations

import omnigraph as og

SCHEMA = """
node Person {
    name: String @key
    born: I32?
}
edge Knows: Person -> Person
"""
ADD = "query add($name: String, $born: I32?) { insert Person { name: $name, born: $born } }"
OLDER = "query older($year: I32) { match { $p: Person  $p.born < $year } return { $p.name, $p.born } }"


def add(graph: og.Graph, name: str, born: int | None = None) -> og.Receipt:
    """Insert a person."""
    return graph.mutate(ADD, name=name, born=born, message=f"add {name}")


def names(result: og.Result) -> list[str]:
    """Return the first column."""
    return [str(row[result.columns[0]]) for row in result]


def merged(graph: og.Graph, branch: str) -> og.MergeOutcome | tuple[og.Conflict, ...]:
    """Merge a branch, or return what stands in the way."""
    try:
        return graph.merge(branch, delete_branch=True)
    except og.MergeConflict as error:
        return error.conflicts


def refusals(graph: og.Graph) -> list[str]:
    """Return the code of everything that is refused here, with its facts."""
    found: list[str] = []
    head = graph.branches.get("main").head
    try:
        graph.mutate(ADD, name="Di", if_commit=graph.commits.get("main~1").id)
    except og.PreconditionFailed as error:
        found.append(f"{error.code} {error.actual == head}")
    try:
        graph.load([{"edge": "Knows", "from": "Ada", "to": "Nobody"}], mode="append")
    except og.ConstraintViolation as error:
        found.append(f"{error.code} {error.violations[0]['code']} {error.total}")
    try:
        graph.query(OLDER.replace("born", "bron"), year=1800)
    except og.QueryError as error:
        found.append(f"{error.code} {error.diagnostics[0].code} {error.summary.count(chr(10))}")
    return found


def main() -> list[str]:
    """Use most of what there is."""
    report: list[str] = []
    with og.init(None, SCHEMA) as graph:
        add(graph, "Ada", 1815)
        with graph.branch("draft", create=True) as draft:
            receipt: og.Receipt = add(draft, "Bo", 1790)
            report.append(f"{receipt.affected_nodes} {receipt.branch}")
        difference: og.Diff = graph.diff("main", "draft")
        report += [f"{change.op.value} {change.id}" for change in difference]
        outcome = merged(graph, "draft")
        if isinstance(outcome, og.MergeOutcome):
            report.append(outcome.outcome.value)
        report += names(graph.query(OLDER, year=1800))
        past: og.Graph = graph.at("main~1")
        report.append(f"{len(past.nodes('Person'))} {len(graph.nodes('Person'))}")
        commit: og.Commit = graph.commits.list().commits[0]
        branch: og.Branch = graph.branches.list()[0]
        report.append(f"{commit.kind.value} {branch.name}")
        report.append(str(graph.nodes("Person").filter(name="Ada").select("born").scalar()))
        report += refusals(graph)
    report.append(str(bool(og.lint(SCHEMA, OLDER))))
    return report


if __name__ == "__main__":
    print("\n".join(main()), og.__version__)
