"""How long does a process take until it is of use, compared with `import lance`?

Every figure is the median of several fresh processes, which take turns so that they share whatever the
machine is doing; byte code is compiled first. Lance is the substrate: no query can start before it is there.
So the ratios to `import lance` say what the package adds, and hold on any machine. The figure is CPU time
(user and system); wall time is printed beside it.

    .venv/bin/python bench/startup.py [--rounds 9] [--json] [--check]

`--check` exits 1 if a ratio is above its bound. `--modules` prints instead where the imports of a first query
spend their time, by package and by folder of this one.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import omnigraph as og

SOURCE = Path(og.__file__).parent
CLI = "from omnigraph.surfaces.cli.app import run; run()"
SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
QUERY = "query all() { match { $p: Person } return { $p.name, $p.age } }"
DATA = [
    {"type": "Person", "data": {"name": "Ada", "age": 36}},
    {"type": "Person", "data": {"name": "Bo", "age": 30}},
    {"edge": "Knows", "from": "Ada", "to": "Bo"},
]
FIRST_QUERY = f"import sys, omnigraph as og\nwith og.connect(sys.argv[1]) as g: g.query({QUERY!r})"
COMPLETION = {"_OMNIGRAPH_COMPLETE": "complete_bash", "COMP_WORDS": "omnigraph sch", "COMP_CWORD": "1"}


@dataclass(frozen=True)
class Case:
    """One thing that a fresh process does, and how much of `import lance` it may take."""

    name: str
    code: str
    arguments: tuple[str, ...] = ()
    bound: float | None = None
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", self.code, *self.arguments]


def cases(graph: str) -> list[Case]:
    """Return what is measured; the first is the measure of the others."""
    return [
        Case("import lance", "import lance"),
        Case("python", "pass"),
        Case("import omnigraph", "import omnigraph", bound=1.2),
        Case("import of the engine", "import omnigraph; omnigraph.connect"),
        Case("first query in a process", FIRST_QUERY, (graph,)),
        Case("omnigraph --version", CLI, ("--version",), 0.5),
        Case("omnigraph --help", CLI, ("--help",), 0.5),
        Case("omnigraph query --help", CLI, ("query", "--help"), 0.5),
        Case("completion", CLI, (), 0.5, tuple(COMPLETION.items())),
        Case("omnigraph query", CLI, ("query", graph, "-e", QUERY), 1.6),
    ]


def run(case: Case, folder: str) -> tuple[float, float]:
    """Run one process; return its CPU and wall seconds."""
    environment = {**os.environ, **dict(case.environment), "PYTHONPATH": str(SOURCE.parent), "HOME": folder}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(case.command, env=environment, cwd=folder, capture_output=True, check=False)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{case.name}: exit {done.returncode}\n{done.stderr.decode()}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, wall


def measure(folder: str, graph: str, rounds: int) -> list[dict[str, object]]:
    """Return the figures of every case."""
    listed = cases(graph)
    samples: dict[str, list[tuple[float, float]]] = {case.name: [] for case in listed}
    for case in listed:
        run(case, folder)  # files into the page cache
    for _ in range(rounds):
        for case in listed:
            samples[case.name].append(run(case, folder))
    base_cpu, base_wall = (median(sample[n] for sample in samples[listed[0].name]) for n in (0, 1))
    figures: list[dict[str, object]] = []
    for case in listed:
        cpu, wall = (median(sample[n] for sample in samples[case.name]) for n in (0, 1))
        figures.append(
            {
                "case": case.name,
                "cpu_ms": round(cpu * 1000),
                "wall_ms": round(wall * 1000),
                "cpu_ratio": round(cpu / base_cpu, 2),
                "wall_ratio": round(wall / base_wall, 2),
                "bound": case.bound,
            }
        )
    return figures


def print_figures(figures: list[dict[str, object]]) -> None:
    """Print a table."""
    print(f"{'':<26} {'CPU ms':>7} {'ratio':>6} {'wall ms':>8} {'ratio':>6}  bound")
    for figure in figures:
        bound = "" if figure["bound"] is None else f"<= {figure['bound']}"
        print(
            f"{figure['case']:<26} {figure['cpu_ms']:>7} {figure['cpu_ratio']:>6}"
            f" {figure['wall_ms']:>8} {figure['wall_ratio']:>6}  {bound}"
        )


def print_modules(folder: str, graph: str) -> None:
    """Print where a process that runs one query spends its imports."""
    command = [sys.executable, "-X", "importtime", "-c", FIRST_QUERY, graph]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
    lines = re.findall(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)", done.stderr)
    spent: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for microseconds, module in lines:
        parts = module.split(".")
        group = ".".join(parts[:3]) if parts[0] == "omnigraph" else parts[0]
        for name in {group, parts[0]}:
            spent[name] += int(microseconds)
            count[name] += 1
    print(f"{'':<34} {'ms':>6} {'modules':>8}   (with the overhead of -X importtime)")
    for name, microseconds in spent.most_common(45):
        print(f"{name:<34} {microseconds / 1000:>6.1f} {count[name]:>8}")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--modules", action="store_true")
    options = parser.parse_args()
    compileall.compile_dir(str(SOURCE), quiet=1)
    with tempfile.TemporaryDirectory() as folder:
        graph = f"{folder}/tiny.og"
        with og.init(graph, SCHEMA) as made:
            made.load(DATA, mode="append")
        if options.modules:
            print_modules(folder, graph)
            return
        figures = measure(folder, graph, options.rounds)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print_figures(figures)
    above = [
        str(figure["case"])
        for figure in figures
        if isinstance(figure["bound"], float) and float(str(figure["cpu_ratio"])) > figure["bound"]
    ]
    if options.check and above:
        sys.exit(f"above the bound: {', '.join(above)}")


if __name__ == "__main__":
    main()
