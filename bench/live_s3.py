"""What a graph on an object store asks of it, counted by a proxy; part of `live.py`.

The store is moto's S3 server on the loopback interface, in memory, behind the counting proxy of the tests. A
cold hop is asked by a process of its own, with empty cache folders; a warm one again by the same process.

    PYTHONPATH=. python bench/live_s3.py DATA_FOLDER          the whole part; the answer is a line of JSON
    python bench/live_s3.py ADDRESS OPTIONS DATA_FOLDER cold|commits     inside, one process of it
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from live_data import NEIGHBOURS, Facts, read
from live_engines import QUESTIONS, UNIQUE_SCHEMA
from live_work import ADD, BOTH, LINK

COMMITS = 10


def main() -> None:
    """Run the part, or one process of it."""
    if len(sys.argv) == 2:
        print(json.dumps(measure(Path(sys.argv[1]))))
        return
    address, options, data, what = sys.argv[1:]
    facts = _facts(Path(data))
    {"cold": hops, "commits": commits}[what](address, json.loads(options), facts)


def _facts(data: Path) -> Facts:
    facts = read(data, NEIGHBOURS[0])
    if facts is None:
        sys.exit(f"no data in {data}")
    return facts


def _say(what: str) -> None:
    """Tell the counter that something was done, and wait until it has counted."""
    print(what, flush=True)
    sys.stdin.readline()


def hops(address: str, options: dict[str, str], facts: Facts) -> None:
    """Ask a first hop in this process; the same again, the hop of another, two hops."""
    import omnigraph as og

    graph = og.connect(address, storage_options=options)
    one, two = QUESTIONS["1 hop"], QUESTIONS["2 hops"]
    asked = [one.params(facts, 0), one.params(facts, 0), one.params(facts, 1)]
    names = ["cold hop", "the same hop again", "the hop of another person"]
    for name, params in zip(names, asked, strict=True):
        rows = graph.query(one.ours, params).table.num_rows
        _say(f"{name} ({rows} rows)")
    rows = graph.query(two.ours, two.params(facts, 2)).table.num_rows
    _say(f"two hops of a third ({rows} rows)")


def commits(address: str, options: dict[str, str], facts: Facts) -> None:
    """Commit a node, an edge and both, one row each, on a warm handle."""
    import omnigraph as og

    graph = og.connect(address, storage_options=options)
    persons = facts.persons
    actions: dict[str, Callable[[int], Any]] = {
        "node": lambda n: graph.mutate(ADD, k=f"s-{n}", e=f"s-{n}"),
        "edge": lambda n: graph.mutate(LINK, k=persons[n % 9], b=persons[n % 9 + 9]),
        "both": lambda n: graph.mutate(BOTH, k=f"b-{n}", e=f"b-{n}", b=persons[n % 9]),
    }
    for name, action in actions.items():
        action(-1)
        _say("-")
        for n in range(COMMITS):
            action(n)
            _say(f"commit of {name}")


def measure(data: Path) -> dict[str, Any]:
    """Load the graph into the store and count what is asked of it."""
    import omnigraph as og
    from tests.support.proxy import S3Proxy
    from tests.support.s3 import S3Server

    facts = _facts(data)
    with S3Server() as server, S3Proxy(server.endpoint) as proxy:
        address = server.new_address()
        started = time.perf_counter()
        with og.init(address, UNIQUE_SCHEMA, storage_options=server.storage_options()) as graph:
            graph.load(facts.files(unique=True), mode="append")
        seconds = time.perf_counter() - started
        edge_bytes = _largest_table(server.client(), address.split("/")[2])
        options = json.dumps(server.storage_options(proxy.endpoint))
        counted: dict[str, list[tuple[int, int]]] = {}
        classes: dict[str, dict[str, int]] = {}
        for what in ("cold", "commits"):
            with tempfile.TemporaryDirectory() as home:
                empty = {"HOME": home, "XDG_CACHE_HOME": f"{home}/cache", "TMPDIR": home}
                command = [sys.executable, __file__, address, options, str(data), what]
                proxy.reset()
                with subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, **empty},
                ) as child:
                    assert child.stdin is not None
                    assert child.stdout is not None
                    for line in child.stdout:
                        asked = proxy.requests
                        moved = sum(one.bytes_down for one in asked)
                        counted.setdefault(line.strip(), []).append((len(asked), moved))
                        classes[line.strip()] = dict(Counter(f"{one.method} {one.klass}" for one in asked))
                        proxy.reset()
                        child.stdin.write("\n")
                        child.stdin.flush()
                if child.returncode != 0:
                    sys.exit(f"{what}: exit {child.returncode}")
        counted.pop("-", None)
    return {"seconds": seconds, "edge bytes": edge_bytes, "counted": counted, "classes": classes}


def _largest_table(client: Any, bucket: str) -> int:
    """Return the bytes of the data files of the largest table, which is that of the edges."""
    sizes: Counter[str] = Counter()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for entry in page.get("Contents", []):
            parts = entry["Key"].split("/")
            if "tables" in parts and parts[-2] == "data":
                sizes[parts[parts.index("tables") + 1]] += entry["Size"]
    return max(sizes.values())


if __name__ == "__main__":
    main()
