"""Open: from the address of a server, or of one of its graphs, to a remote graph."""

from __future__ import annotations

from omnigraph.base.errors import GraphError, InvalidRequest, Kind
from omnigraph.storage.manifest.records import MAIN
from omnigraph.surfaces.client.graph import RemoteGraph
from omnigraph.surfaces.client.transport import RETRIES, TIMEOUT, RemoteRequest, Transport, segment

GRAPHS = "/graphs"


def open_remote(
    address: str,
    *,
    token: str | None = None,
    branch: str = MAIN,
    timeout: float = TIMEOUT,
    retries: int = RETRIES,
) -> RemoteGraph:
    """Open `http(s)://HOST/graphs/ID`, or the only graph of `http(s)://HOST`.

    The first asks the server for nothing, unless a branch is named: that it is misspelt is said now.
    """
    transport = Transport(address, token=token, timeout=timeout, retries=retries)
    try:
        graph = RemoteGraph(_of_graph(transport), branch=branch)
        if branch != MAIN:
            graph.branches.get(branch)
    except BaseException:
        transport.close()
        raise
    return graph


def list_graphs(transport: Transport) -> list[dict[str, str]]:
    """Return the graphs of a server: `graph_id` and `uri`, those that are ready."""
    graphs: list[dict[str, str]] = transport.ask(RemoteRequest("GET", GRAPHS))["graphs"]
    return graphs


def _of_graph(transport: Transport) -> Transport:
    """Return the calls of one graph; an address without the id of one means the only one that there is."""
    if names_graph(transport.url):
        return transport
    try:
        ids = [entry["graph_id"] for entry in list_graphs(transport)]
    except GraphError as error:
        if error.kind is not Kind.DENIED:
            raise
        return transport  # who may not see the list can still use a server of one graph, at its root
    if len(ids) != 1:
        known = ", ".join(ids) or "none"
        raise InvalidRequest(
            f"the server at {transport.url} has {len(ids)} graphs: {known}",
            remedy=f"Name one: {transport.url}{GRAPHS}/{ids[0] if ids else 'ID'}",
            graphs=tuple(ids),
        )
    return transport.at(f"{GRAPHS}/{segment(ids[0])}")


def names_graph(url: str) -> bool:
    """Say whether an address ends in the id of a graph.

    >>> names_graph("http://db:8080/graphs/kb"), names_graph("http://db:8080")
    (True, False)
    """
    *_, folder, name = ["", "", *url.rstrip("/").split("/")]
    return f"/{folder}" == GRAPHS and bool(name)


def server_of(url: str) -> str:
    """Return the address of the server that has a graph.

    >>> server_of("http://db:8080/graphs/kb")
    'http://db:8080'
    """
    return url.rstrip("/").rpartition(GRAPHS)[0] if names_graph(url) else url.rstrip("/")
