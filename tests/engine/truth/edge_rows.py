"""Rows V-059 to V-091: endpoints, cascades, cardinality, and what one mutation may not mix."""

from __future__ import annotations

from tests.engine.truth.value_rows import person
from tests.engine.truth.vocabulary import (
    APPEND,
    MERGE,
    OVERWRITE,
    STATEMENTS,
    Case,
    Ok,
    Record,
    edge,
    node,
    put,
    refused,
    run,
)

ADDING = (STATEMENTS, APPEND, MERGE)
ALICE, BOB, CARL = person("Alice"), person("Bob"), person("Carl")
ACME, BETA = node("Company", name="Acme"), node("Company", name="Beta")


def knows(source: str, target: str, **data: str) -> Record:
    """Return a Knows edge."""
    return edge("Knows", source, target, **data)


def works(source: str, target: str, **data: str) -> Record:
    """Return a WorksAt edge."""
    return edge("WorksAt", source, target, **data)


def row(source: str, target: str, **data: str) -> Record:
    """Return an edge as it is stored."""
    return {"src": source, "dst": target, **data}


FRIENDS = (ALICE, BOB, knows("Alice", "Bob", id="e1"))
A_ROW, B_ROW = {"name": "Alice"}, {"name": "Bob"}

ENDPOINTS = [
    Case(
        "V-059",
        "a target that is not there",
        "P K",
        put(knows("Alice", "Ghost")),
        refused("orphan_edge", saying="dst 'Ghost' not found in Person"),
        committed=(ALICE,),
    ),
    Case(
        "V-059",
        "a source that is not there",
        "P K",
        put(knows("Ghost", "Alice")),
        refused("orphan_edge", saying="src 'Ghost' not found in Person"),
        committed=(ALICE,),
    ),
    Case(
        "V-059",
        "neither is there",
        "P K",
        put(knows("Ghost", "Spook")),
        refused("orphan_edge", "orphan_edge"),
        committed=(ALICE,),
    ),
    Case(
        "V-060",
        "an edge before its node",
        "P K",
        put(knows("Alice", "Bob"), BOB),
        Ok({"Person": [A_ROW, B_ROW], "Knows": [row("Alice", "Bob")]}),
        (APPEND, MERGE),
        committed=(ALICE,),
    ),
    Case(
        "V-061",
        "an edge before its node",
        "P K",
        put(knows("Alice", "Bob"), BOB),
        Ok({"Person": [A_ROW, B_ROW], "Knows": [row("Alice", "Bob")]}, affected=(1, 1)),
        (STATEMENTS,),
        committed=(ALICE,),
    ),
    Case(
        "V-062",
        "the deletion of a node takes its edge",
        "P K",
        run('delete Person where name = "Bob"'),
        Ok({"Person": [A_ROW], "Knows": []}, affected=(1, 1)),
        (STATEMENTS,),
        committed=FRIENDS,
    ),
    Case(
        "V-063",
        "a replacement that drops an endpoint",
        "P K",
        put(ALICE),
        refused("orphan_edge", saying="dst 'Bob' not found in Person", entity=("Knows", "e1")),
        (OVERWRITE,),
        committed=FRIENDS,
    ),
    Case(
        "V-064",
        "a replacement that drops the edge too",
        "P K",
        put(ALICE, empty=("Knows",)),
        Ok({"Person": [A_ROW], "Knows": []}),
        (OVERWRITE,),
        committed=FRIENDS,
    ),
    Case(
        "V-064",
        "a replacement that keeps the endpoints",
        "P K",
        put(ALICE, BOB),
        Ok({"Person": [A_ROW, B_ROW], "Knows": [row("Alice", "Bob", id="e1")]}),
        (OVERWRITE,),
        committed=FRIENDS,
    ),
    Case(
        "V-066",
        "a new image of nodes and edges",
        "P K",
        put(CARL, knows("Carl", "Carl")),
        Ok({"Person": [{"name": "Carl"}], "Knows": [row("Carl", "Carl")]}),
        (OVERWRITE,),
        committed=(ALICE,),
    ),
    Case(
        "V-067",
        "edges only, to nodes that stay",
        "P K",
        put(knows("Alice", "Bob")),
        Ok({"Person": [A_ROW, B_ROW], "Knows": [row("Alice", "Bob")]}),
        (OVERWRITE,),
        committed=(ALICE, BOB),
    ),
    Case(
        "V-067",
        "edges only, to a node that is not there",
        "P K",
        put(knows("Alice", "Ghost")),
        refused("orphan_edge"),
        (OVERWRITE,),
        committed=(ALICE, BOB),
    ),
    Case(
        "V-069",
        "an edge moved to a node that is not there",
        "P K",
        put(knows("Alice", "Ghost", id="e1")),
        refused("orphan_edge", entity=("Knows", "e1")),
        (MERGE,),
        committed=FRIENDS,
    ),
    Case(
        "V-070",
        "a loop",
        "P K",
        put(knows("Alice", "Alice")),
        Ok({"Knows": [row("Alice", "Alice")]}),
        committed=(ALICE, BOB),
    ),
    Case(
        "V-070",
        "two parallel edges",
        "P K",
        put(knows("Alice", "Bob"), knows("Alice", "Bob")),
        Ok({"Knows": [row("Alice", "Bob"), row("Alice", "Bob")]}),
        committed=(ALICE, BOB),
    ),
    Case(
        "V-071",
        "predicates that overlap",
        "P K",
        run('delete Person where name = "Alice" delete Person where name < "Zoe"'),
        Ok({"Person": [], "Knows": []}, affected=(2, 1)),
        (STATEMENTS,),
        committed=FRIENDS,
    ),
    Case(
        "V-072",
        "a predicate that is unknown for a row",
        "P K",
        run('delete Person where age > 30 delete Person where name = "Zoe"'),
        Ok({"Person": [], "Knows": []}, affected=(2, 1)),
        (STATEMENTS,),
        committed=(person("Zoe"), person("Carl", 35), knows("Zoe", "Carl")),
    ),
    Case(
        "V-091",
        "insert and delete in one mutation",
        "P K",
        run('insert Person { name: "Bob" } delete Person where name = "Alice"'),
        refused("mixed_mutation"),
        (STATEMENTS,),
        committed=(ALICE,),
    ),
]

EMPLOYED = (ALICE, ACME, BETA, works("Alice", "Acme", id="E1"))
WITH_BOB = (*EMPLOYED, BOB)
TWICE = (*EMPLOYED, works("Alice", "Beta", id="E2"))
E1_ROW = row("Alice", "Acme", id="E1")
CARDINALITY = [
    Case(
        "V-073",
        "one more than allowed",
        "P C W1",
        put(works("Alice", "Beta")),
        refused("cardinality", saying="source 'Alice' has 2 edges (max 1)"),
        ADDING,
        committed=EMPLOYED,
    ),
    Case(
        "V-074",
        "two at once",
        "P C W1",
        put(works("Alice", "Acme"), works("Alice", "Beta")),
        refused("cardinality"),
        committed=(ALICE, ACME, BETA),
    ),
    Case(
        "V-075",
        "an edge moved to another target",
        "P C W1",
        put(works("Alice", "Beta", id="E1")),
        Ok({"WorksAt": [row("Alice", "Beta", id="E1")]}),
        (MERGE,),
        committed=EMPLOYED,
    ),
    Case(
        "V-076",
        "one id twice counts once",
        "P C W1",
        put(works("Alice", "Acme", id="w1"), works("Alice", "Beta", id="w1")),
        Ok({"WorksAt": [row("Alice", "Beta", id="w1")]}),
        (MERGE,),
        committed=(ALICE, ACME, BETA),
    ),
    Case(
        "V-077",
        "one id under two sources counts under the last",
        "P C W1",
        put(works("Alice", "Beta", id="E2"), works("Bob", "Beta", id="E2")),
        Ok({"WorksAt": [E1_ROW, row("Bob", "Beta", id="E2")]}),
        (MERGE,),
        committed=WITH_BOB,
    ),
    Case(
        "V-078",
        "a replacement with two",
        "P C W1",
        put(works("Alice", "Acme"), works("Alice", "Beta")),
        refused("cardinality"),
        (OVERWRITE,),
        committed=EMPLOYED,
    ),
    Case(
        "V-079",
        "an edge moved away from its source",
        "P C WM",
        put(works("Bob", "Acme", id="E1")),
        refused("cardinality", saying="source 'Alice' has 0 edges (min 1)", entity=("WorksAt", "Alice")),
        (MERGE,),
        committed=WITH_BOB,
    ),
    Case(
        "V-080",
        "the last edge deleted",
        "P C WM",
        run('delete WorksAt where from = "Alice"'),
        refused("cardinality", saying="(min 1)"),
        (STATEMENTS,),
        committed=EMPLOYED,
    ),
    Case(
        "V-081",
        "the source itself deleted",
        "P C WM",
        run('delete Person where name = "Alice"'),
        Ok({"Person": [], "WorksAt": []}, affected=(1, 1)),
        (STATEMENTS,),
        committed=EMPLOYED,
    ),
    Case(
        "V-082",
        "the target of the last edge deleted",
        "P C WM",
        run('delete Company where name = "Acme"'),
        refused("cardinality", saying="source 'Alice' has 0 edges (min 1)"),
        (STATEMENTS,),
        committed=EMPLOYED,
    ),
    Case(
        "V-083",
        "the target of one of two edges deleted",
        "P C WM",
        run('delete Company where name = "Acme"'),
        Ok({"Company": [{"name": "Beta"}], "WorksAt": [row("Alice", "Beta", id="E2")]}, affected=(1, 1)),
        (STATEMENTS,),
        committed=TWICE,
    ),
    Case(
        "V-084",
        "all edges replaced by none",
        "P C WM",
        put(empty=("WorksAt",)),
        refused("cardinality", saying="source 'Alice' has 0 edges (min 1)"),
        (OVERWRITE,),
        committed=EMPLOYED,
    ),
    Case(
        "V-085",
        "edges and their sources replaced",
        "P C WM",
        put(BOB, empty=("WorksAt",)),
        Ok({"Person": [B_ROW], "WorksAt": []}),
        (OVERWRITE,),
        committed=EMPLOYED,
    ),
    Case("V-086", "a source without an edge", "P C WM", put(BOB), Ok({"Person": [B_ROW], "WorksAt": []})),
    Case(
        "V-087",
        "one edge where two are wanted",
        "P C W2",
        put(works("Alice", "Acme")),
        refused("cardinality", saying="(min 2)"),
        committed=(ALICE, ACME, BETA),
    ),
    Case(
        "V-087",
        "two edges at once",
        "P C W2",
        put(works("Alice", "Acme"), works("Alice", "Beta")),
        Ok({"WorksAt": [row("Alice", "Acme"), row("Alice", "Beta")]}),
        committed=(ALICE, ACME, BETA),
    ),
    Case(
        "V-089",
        "an edge that another handle committed",
        "P C W1",
        put(works("Alice", "Beta")),
        refused("cardinality"),
        ADDING,
        committed=(ALICE, ACME, BETA),
        behind=(works("Alice", "Acme"),),
    ),
]
