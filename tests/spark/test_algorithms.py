"""Algorithms on Spark beside small obvious models, on random graphs and on graphs made to be awkward."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import InvalidRequest, TypeNotFound
from omnigraph.catalog.catalog import UnknownType
from omnigraph.pipeline.analytics import connected_components, label_propagation, triangle_count
from omnigraph.pipeline.analytics.algorithms import CUT_EVERY, Rounds, _least, pagerank

pytestmark = pytest.mark.spark

SCHEMA = """
node P { k: String @key }
node Q { k: String @key }
node Apart { k: String @key }
edge PP: P -> P
edge PQ: P -> Q
edge QQ: Q -> Q
"""
ENDS = {"PP": ("P", "P"), "PQ": ("P", "Q"), "QQ": ("Q", "Q")}
Node = tuple[str, str]
Edges = list[tuple[Node, Node]]


class World:
    """A graph and the same as plain lists: two types whose ids are the same, and edges of three types."""

    def __init__(self, graph: Graph, nodes: list[Node], edges: dict[str, Edges]) -> None:
        self.graph, self.nodes, self._edges = graph, nodes, edges

    def edges(self, *types: str) -> Edges:
        return [edge for name in types or ENDS for edge in self._edges[name]]


def make(path: Path, nodes: list[Node], edges: dict[str, Edges]) -> World:
    graph = og.init(path, SCHEMA, durability="os")
    records: list[dict[str, Any]] = [{"type": kind, "data": {"k": key}} for kind, key in nodes]
    records += [{"type": "Apart", "data": {"k": "apart"}}]
    for name, pairs in edges.items():
        records += [{"edge": name, "from": a, "to": b} for (_, a), (_, b) in pairs]
    half = len(records) // 2
    for part in (records[:half], records[half:]):  # several fragments
        graph.load([one for one in part if "type" in one], mode="append")
    graph.load([one for one in records if "edge" in one], mode="append")
    return World(graph, sorted(nodes), {name: edges.get(name, []) for name in ENDS})


def random_world(path: Path, seed: int) -> World:
    """Return a world of clumps, some joined, with parallel edges, loops and nodes that no edge reaches."""
    choice = random.Random(seed)
    nodes = [
        (kind, key) for kind in "PQ" for key in ("ä", "Z", *(str(n) for n in range(choice.randint(5, 25))))
    ]
    clumps = [choice.sample(nodes, choice.randint(2, 9)) for _ in range(4)]
    edges: dict[str, Edges] = defaultdict(list)
    for _ in range(60):
        a, b = (choice.choice(choice.choice(clumps)) for _ in range(2))
        for name, ends in ENDS.items():
            if ends == (a[0], b[0]):
                edges[name] += [(a, b)] * choice.choice([1, 1, 1, 2, 3])
    edges["PP"].append((("P", "ä"), ("P", "ä")))
    return make(path, nodes, edges)


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.full)])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A random graph that nobody changes."""
    made = random_world(tmp_path_factory.mktemp("world") / "graph.og", request.param)
    yield made
    made.graph.close()


def values(found: DataFrame) -> dict[Node, Any]:
    """Return a result by node; every node has exactly one row."""
    rows = found.collect()
    assert found.columns[:2] == ["type", "id"]
    by_node = {(row.type, row.id): row[2] for row in rows}
    assert len(by_node) == len(rows)
    return by_node


def least(nodes: Iterable[Node]) -> Node:
    """Return the first by type and id, as UTF-8."""
    return min(nodes, key=lambda node: (node[0].encode(), node[1].encode()))


# -- PageRank ----------------------------------------------------------------------------------------


def plain_pagerank(nodes: list[Node], edges: Edges, damping: float, rounds: int) -> dict[Node, float]:
    out = Counter(a for a, _ in edges)
    ranks = dict.fromkeys(nodes, 1 / len(nodes))
    for _ in range(rounds):
        stuck = sum(rank for node, rank in ranks.items() if not out[node])
        after = dict.fromkeys(nodes, (1 - damping + damping * stuck) / len(nodes))
        for a, b in edges:
            after[b] += damping * ranks[a] / out[a]
        ranks = after
    return ranks


@pytest.mark.parametrize(("damping", "rounds"), [(0.85, 5), pytest.param(0.5, 12, marks=pytest.mark.full)])
def test_ranks_are_those_of_the_model_after_so_many_rounds(
    spark: SparkSession, world: World, damping: float, rounds: int
) -> None:
    found = values(pagerank(spark, world.graph, damping=damping, tolerance=0, max_rounds=rounds))

    wanted = plain_pagerank(world.nodes, world.edges(), damping, rounds)
    assert found == {node: pytest.approx(rank, abs=1e-12) for node, rank in wanted.items()}
    assert sum(found.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.full
def test_it_ends_with_the_first_round_that_moves_little(spark: SparkSession, world: World) -> None:
    states = [plain_pagerank(world.nodes, world.edges(), 0.5, rounds) for rounds in range(20)]
    moved = [sum(abs(after[n] - before[n]) for n in world.nodes) for before, after in pairwise(states)]
    enough = next(number for number, part in enumerate(moved, 1) if part < 0.05)
    assert 2 <= enough < 10

    found = values(pagerank(spark, world.graph, damping=0.5, tolerance=0.05))
    assert found == {node: pytest.approx(rank, abs=1e-12) for node, rank in states[enough].items()}


@pytest.mark.full
def test_the_same_commit_gives_the_same_bits_however_spark_divides_the_work(
    spark: SparkSession, world: World
) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.shuffle.partitions", "7")
    other.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    other.conf.set("spark.sql.adaptive.enabled", "false")
    first, second = (values(pagerank(session, world.graph, max_rounds=2)) for session in (spark, other))
    assert first == second


# -- components --------------------------------------------------------------------------------------


def plain_components(nodes: list[Node], edges: Edges) -> dict[Node, str]:
    groups = {node: {node} for node in nodes}
    for a, b in edges:
        joined = groups[a] | groups[b]
        for node in joined:
            groups[node] = joined
    return {node: "/".join(least(group)) for node, group in groups.items()}


@pytest.mark.parametrize("types", [(), pytest.param(("PP", "QQ"), marks=pytest.mark.full)])
def test_components_are_those_of_the_model(spark: SparkSession, world: World, types: tuple[str, ...]) -> None:
    found = values(connected_components(spark, world.graph, types or None))
    assert found == plain_components(world.nodes, world.edges(*types))


@pytest.mark.full
def test_a_long_chain_takes_few_rounds(spark: SparkSession) -> None:
    """Its length does not count, only its logarithm."""
    order = list(range(500))
    random.Random(3).shuffle(order)
    links = [(min(pair), max(pair)) for pair in pairwise(order)]
    rounds = Rounds()

    found = _least(spark.createDataFrame(links, "a long, b long"), rounds)

    assert {(row.n, row.root) for row in found.collect()} == {(n, 0) for n in range(1, 500)}
    assert rounds.count <= 10
    rounds.close()


# -- labels ------------------------------------------------------------------------------------------


def plain_labels(nodes: list[Node], edges: Edges, rounds: int) -> dict[Node, str]:
    labels = {node: node for node in nodes}
    for _ in range(rounds):
        heard: dict[Node, Counter[Node]] = defaultdict(Counter)
        for a, b in edges:
            if a != b:
                heard[a][labels[b]] += 1
                heard[b][labels[a]] += 1
        labels = {node: _loudest(heard[node], own) for node, own in labels.items()}
    return {node: "/".join(label) for node, label in labels.items()}


def _loudest(heard: Counter[Node], own: Node) -> Node:
    most = max(heard.values(), default=0)
    return least(label for label, times in heard.items() if times == most) if heard else own


@pytest.mark.parametrize("rounds", [3, pytest.param(6, marks=pytest.mark.full)])
def test_labels_are_those_of_the_model(spark: SparkSession, world: World, rounds: int) -> None:
    found = values(label_propagation(spark, world.graph, rounds=rounds))
    assert found == plain_labels(world.nodes, world.edges(), rounds)


# -- triangles ---------------------------------------------------------------------------------------


def plain_triangles(nodes: list[Node], edges: Edges) -> dict[Node, int]:
    pairs = {frozenset(edge) for edge in edges if edge[0] != edge[1]}
    counts = dict.fromkeys(nodes, 0)
    for corners in combinations(sorted({node for pair in pairs for node in pair}), 3):
        if all(frozenset(side) in pairs for side in combinations(corners, 2)):
            for corner in corners:
                counts[corner] += 1
    return counts


@pytest.mark.parametrize("types", [(), pytest.param(("PP",), marks=pytest.mark.full)])
def test_triangles_are_those_of_the_model(spark: SparkSession, world: World, types: tuple[str, ...]) -> None:
    found = values(triangle_count(spark, world.graph, types or None))
    kinds = {kind for name in types or ENDS for kind in ENDS[name]}
    nodes = [node for node in world.nodes if node[0] in kinds]
    assert found == plain_triangles(nodes, world.edges(*types))
    assert types or sum(found.values()) > 0, "the model world has some"


# -- what counts, by hand ----------------------------------------------------------------------------


def test_loops_and_parallel_edges_count_where_they_should(spark: SparkSession, tmp_path: Path) -> None:
    a, b, c, d = (("P", key) for key in "abcd")
    edges = {"PP": [(a, a), (a, b), (a, b), (a, c), (b, c), (c, b), (c, a), (d, d)]}
    world = make(tmp_path / "graph.og", [a, b, c, d], edges)

    ranks = values(pagerank(spark, world.graph, ["PP"], damping=0.8, tolerance=0, max_rounds=1))
    assert ranks[b] == pytest.approx(0.05 + 0.8 / 4 * (2 / 4 + 1 / 2)), "two of the four edges of a, one of c"
    assert ranks[d] == pytest.approx(0.05 + 0.8 / 4), "a loop keeps what it is given"
    assert values(connected_components(spark, world.graph, ["PP"])) == {
        a: "P/a",
        b: "P/a",
        c: "P/a",
        d: "P/d",
    }
    labels = values(label_propagation(spark, world.graph, ["PP"], rounds=1))
    assert labels == {a: "P/b", b: "P/a", c: "P/a", d: "P/d"}, "two edges weigh more than one, else the least"
    assert values(triangle_count(spark, world.graph, ["PP"])) == {a: 1, b: 1, c: 1, d: 0}
    world.graph.close()


@pytest.mark.full
def test_a_graph_without_edges_has_an_answer(spark: SparkSession, tmp_path: Path) -> None:
    lonely = make(tmp_path / "lonely.og", [("P", "a"), ("Q", "a")], {})
    assert values(pagerank(spark, lonely.graph)) == {("P", "a"): 0.5, ("Q", "a"): 0.5}
    assert values(connected_components(spark, lonely.graph)) == {("P", "a"): "P/a", ("Q", "a"): "Q/a"}
    assert values(label_propagation(spark, lonely.graph)) == {("P", "a"): "P/a", ("Q", "a"): "Q/a"}
    assert values(triangle_count(spark, lonely.graph)) == {("P", "a"): 0, ("Q", "a"): 0}
    lonely.graph.close()


@pytest.mark.full
def test_an_empty_graph_has_an_empty_answer(spark: SparkSession, tmp_path: Path) -> None:
    with og.init(tmp_path / "empty.og", SCHEMA, durability="os") as empty:
        for algorithm in (pagerank, connected_components, label_propagation, triangle_count):
            assert algorithm(spark, empty).count() == 0


# -- which state -------------------------------------------------------------------------------------


def test_branches_and_past_states_are_read_under_the_names_of_now(
    spark: SparkSession, tmp_path: Path
) -> None:
    with og.init(tmp_path / "g.og", "node P { k: String @key }\nedge E: P -> P", durability="os") as graph:
        edge = {"edge": "E", "from": "a", "to": "b"}
        first = graph.load([*({"type": "P", "data": {"k": k}} for k in "ab"), edge], mode="append").commit_id
        graph.branches.create("dev")
        graph.mutate('query q() { insert P { k: "dev" } }', branch="dev")
        graph.schema.apply(
            'node R @rename_from("P") { k: String @key }\nedge F: R -> R @rename_from("E")\nedge New: R -> R'
        )
        graph.mutate('query q() { insert R { k: "later" } }')

        past = connected_components(spark, graph, at=first)
        now = connected_components(spark, graph, ["F"])
        dev = connected_components(spark, graph, branch="dev")
        graph.mutate('query q() { delete R where k = "a" }')

        assert values(past) == {("R", "a"): "R/a", ("R", "b"): "R/a"}
        assert values(now) == {("R", "a"): "R/a", ("R", "b"): "R/a", ("R", "later"): "R/later"}
        assert ("P", "dev") in values(dev)
        with pytest.raises(TypeNotFound, match="'New' did not exist"):
            connected_components(spark, graph, ["New"], at=first)


@pytest.mark.parametrize(
    ("edge_types", "error"),
    [(["Nope"], UnknownType), ("PP", InvalidRequest), ([], InvalidRequest)],
)
def test_edge_types_that_are_none_are_refused(
    spark: SparkSession, world: World, edge_types: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        connected_components(spark, world.graph, edge_types)


@pytest.mark.parametrize(
    "options", [{"damping": 1.0}, {"damping": -0.1}, {"tolerance": -1.0}, {"max_rounds": 0}]
)
def test_numbers_that_make_no_sense_are_refused(spark: SparkSession, world: World, options: Any) -> None:
    with pytest.raises(InvalidRequest):
        pagerank(spark, world.graph, **options)
    with pytest.raises(InvalidRequest):
        label_propagation(spark, world.graph, rounds=0)


# -- rounds ------------------------------------------------------------------------------------------


def plan_size(frame: DataFrame) -> int:
    return len(str(frame._jdf.queryExecution().logical().toString()).splitlines())


def test_plans_do_not_grow_with_the_rounds_and_nothing_is_left_in_memory(spark: SparkSession) -> None:
    state, rounds, sizes = spark.range(10).withColumn("n", f.lit(0)), Rounds(), []
    for number in range(2 * CUT_EVERY + 2):
        after = state.join(state.select("id"), "id").select("id", (f.col("n") + 1).alias("n"))
        sizes.append(plan_size(after))
        state, measured = rounds.take(after, f.max("n").alias("n"), f.min("n").alias("least"))
        assert (measured.n, measured.least) == (number + 1, number + 1)

    assert max(sizes) == max(sizes[:CUT_EVERY]), "a state is used twice: uncut, plans double each round"
    kept, _ = rounds.take(state.select("id", "n"), f.max("n"))
    assert kept.is_cached
    assert kept.count() == 10
    rounds.close()
    assert not kept.is_cached
