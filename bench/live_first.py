"""One fresh process that opens a graph and asks one query: started by `live.py`, many times.

    python bench/live_first.py ENGINE PATH QUERY [NAME=VALUE ...]

Prints the moments (of the clock that all processes share) at which Python ran, the engine was imported, the
graph was open and the answer was there, then the number of rows. It imports nothing but the engine.
"""

import sys
import time

started = time.perf_counter()
engine, path, text = sys.argv[1:4]
params = {
    name: int(value) if value.isdigit() else value for name, value in (a.split("=") for a in sys.argv[4:])
}
if engine == "ours":
    import omnigraph as og

    connect = og.connect  # the engine is loaded when it is first named
    imported = time.perf_counter()
    graph = connect(path)
    opened = time.perf_counter()
    count = graph.query(text, params).table.num_rows
else:
    import ladybug

    imported = time.perf_counter()
    connection = ladybug.Connection(ladybug.Database(path))
    opened = time.perf_counter()
    count = len(connection.execute(text, params).get_all())  # type: ignore[union-attr, unused-ignore]
answered = time.perf_counter()
print(started, imported, opened, answered, count)
