"""Servers: log in and out, and what a server has: its graphs and its stored queries."""

from __future__ import annotations

import sys
from typing import Annotated, Any, BinaryIO

import typer

from omnigraph.base.errors import InvalidRequest
from omnigraph.language.diagnostics import QueryError
from omnigraph.surfaces.cli.settings import Settings, is_served
from omnigraph.surfaces.cli.support.call import Address, Call, GraphUri, call_of
from omnigraph.surfaces.cli.support.command_line import Commands

STDIN = "-"
ServerName = Annotated[
    str, typer.Argument(metavar="NAME", help="The server, as the operator config names it.")
]


# -- log in and out ----------------------------------------------------------------------------------


def login(
    ctx: typer.Context,
    name: ServerName,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", metavar="TOKEN|-", help="The token; - or nothing: read it from standard input."
        ),
    ] = None,
) -> None:
    """Keep the token of a server, in a file that nobody else can read."""
    from omnigraph.surfaces.cli.support.served import NAME, read_credentials, write_credentials

    call = call_of(ctx)
    if not NAME.fullmatch(name):
        raise InvalidRequest(f"{name!r} is no name of a server", remedy="Use letters, digits, - and _")
    secret = (_asked(call, name) if token in (None, STDIN) else str(token)).strip()
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise InvalidRequest("the token is empty, or has characters that no token has", remedy="Check it")
    file = write_credentials({**read_credentials(), name: secret})
    declared = _is_declared(call.settings, name)
    lines = [f"the token of {name} is kept in {file}"]
    if not declared:
        lines.append(f"  it is used once the operator config has servers.{name}.url")
    call.output.result({"server": name, "credentials_path": str(file), "declared": declared}, *lines)


def logout(ctx: typer.Context, name: ServerName) -> None:
    """Forget the token of a server."""
    from omnigraph.surfaces.cli.support.served import credentials_file, read_credentials, write_credentials

    call = call_of(ctx)
    kept = read_credentials()
    known = kept.pop(name, None) is not None
    file = write_credentials(kept) if known else credentials_file()
    declared = _is_declared(call.settings, name)
    call.output.result(
        {"server": name, "credentials_path": str(file), "declared": declared},
        f"the token of {name} is forgotten" if known else f"there was no token of {name}",
    )


def _is_declared(settings: Settings, name: str) -> bool:
    return name in (settings.config.find("operator", "servers") or {})


def _asked(call: Call, name: str) -> str:
    if sys.stdin.isatty():
        call.output.note(f"Token of {name}:")
    return sys.stdin.readline()


# -- graphs ------------------------------------------------------------------------------------------


graphs_app = Commands(help="The graphs of a server.")


@graphs_app.command("list", example="omnigraph graphs list https://graphs.example.org --json")
def list_graphs(ctx: typer.Context, address: Address = None, graph_uri: GraphUri = None) -> None:
    """List the graphs that a server has ready."""
    from omnigraph.surfaces.client.open import list_graphs as graphs_of
    from omnigraph.surfaces.client.open import server_of

    call = call_of(ctx)
    where = call.settings.address(address, graph_uri)
    if not is_served(where):
        raise InvalidRequest(f"{where} is no server", remedy="Give http(s)://HOST:PORT, or a configured name")
    transport = call.transport(server_of(where))
    try:
        graphs = graphs_of(transport)
    finally:
        transport.close()
    if call.settings.json:
        call.output.result({"graphs": graphs})
        return
    lines = "".join(f"{graph['graph_id']}\t{graph['uri']}\n" for graph in graphs)

    def write(sink: BinaryIO) -> None:
        sink.write(lines.encode())

    call.output.stream(write)


# -- stored queries ----------------------------------------------------------------------------------


queries_app = Commands(
    help="Stored queries: those of a server, or of the folder that the project file names."
)


@queries_app.command("list", example="omnigraph queries list https://graphs.example.org/graphs/kb")
def list_queries(ctx: typer.Context, address: Address = None, graph_uri: GraphUri = None) -> None:
    """List the stored queries: whether each reads or writes, its parameters, and what it is for."""
    entries = _entries(call := call_of(ctx), address, graph_uri)
    call.output.result({"queries": entries}, *map(_entry_line, entries))


@queries_app.command("validate", example="omnigraph queries validate https://graphs.example.org/graphs/kb")
def validate_queries(ctx: typer.Context, address: Address = None, graph_uri: GraphUri = None) -> int:
    """Check the stored queries against the schema that is in force now; exit 1 if one is broken."""
    call = call_of(ctx)
    try:
        entries = _entries(call, address, graph_uri)
    except QueryError as error:  # of a folder: on a graph that is not served, nobody has checked it before
        broken = [{"query": error.source.file, "message": error.summary}]
    else:
        broken = [
            {"query": entry["name"], "message": str(entry["error"])}
            for entry in entries
            if entry.get("error")
        ]
    lines = [f"{fault['query']}: {fault['message']}" for fault in broken]
    call.output.result({"ok": not broken, "breakages": broken, "warnings": []}, *(lines or ["OK"]))
    return 1 if broken else 0


def _entries(call: Call, address: str | None, graph_uri: str | None) -> list[dict[str, Any]]:
    where = call.settings.address(address, graph_uri)
    if not is_served(where) and call.settings.config.stored_queries(where) is None:
        raise InvalidRequest(
            f"{where} has no stored queries: it is not served, and the project file names no folder for it",
            remedy="Give http(s)://HOST/graphs/ID, or set graphs.NAME.queries in omnigraph.yaml; "
            "check files with omnigraph lint --query",
        )
    with call.connect(where, stored=True) as graph:
        return [dict(entry) for entry in graph.queries.list()]


def _entry_line(entry: dict[str, Any]) -> str:
    kind = "mutation" if entry.get("mutation") else "read"
    params = ", ".join(f"{p['name']}: {p['kind']}{'?' if p.get('nullable') else ''}" for p in entry["params"])
    about = f"  {entry['description']}" if entry.get("description") else ""
    return f"{kind:<8}  {entry['name']}({params}){about}"
