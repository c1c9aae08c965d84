"""Tokens of a server: made, listed and revoked in the file that it reads.

Only digests are stored, so a token is seen once, when it is made. An edit holds a lock on a file beside,
reads what is there, and puts a whole new file in its place: of two edits at the same time none is lost, and a
server never reads half of one. What an edit does not concern stays as it was written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, NotFound
from omnigraph.base.ids import Clock, SystemClock, new_id, new_secret
from omnigraph.base.times import read_duration, write_instant
from omnigraph.surfaces.cli.support.call import call_of
from omnigraph.surfaces.cli.support.command_line import Commands
from omnigraph.surfaces.server.tokens import (
    TokenEntry,
    actor_fault,
    digest_of,
    expiry_of,
    read_document,
    read_token,
    read_tokens,
)

PREFIX = "og_"  # by which scanners of sources recognise a token
OWNER_ONLY = 0o600

app = Commands(help="Make, list and revoke the tokens of a server.")
File = Annotated[
    Path,
    typer.Option("--file", metavar="FILE", help="The file that the server reads: --file tokens.json."),
]


@app.command("new", example="omnigraph token new --file tokens.json --actor ada --expires 90d")
def new(
    ctx: typer.Context,
    file: File,
    actor: Annotated[str, typer.Option("--actor", metavar="NAME", help="Who the token stands for.")],
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="How long it is good: 12h, 90d, 4w.")
    ] = None,
) -> None:
    """Make a token, print it once, and store its digest; earlier tokens of the actor stay good."""
    call = call_of(ctx)
    name = actor.strip()
    if (fault := actor_fault(name)) is not None:
        raise InvalidRequest(f"the actor cannot be used: {fault}", remedy="Choose another name", actor=name)
    token, stored = _made(expires, SystemClock())
    document = {"file": str(file), "actor": name, "id": stored["id"], "expires": stored.get("expires")}
    if call.settings.dry_run:
        _Edit.of(file)
        call.output.result({**document, "dry_run": True}, f"would make a token for {name}")
        return
    call.output.writing()
    with _editing(file) as edit:
        edit.add(name, stored)
    until = f", good until {stored['expires']}" if "expires" in stored else ""
    call.output.note(f"token {stored['id']} for {name}{until}; it is not shown again")
    call.output.result({**document, "token": token}, token)


@app.command("list", example="omnigraph token list --file tokens.json --json")
def list_(ctx: typer.Context, file: File) -> None:
    """List who has a token, its id and its end; never a token."""
    now_us = SystemClock().now_us()
    rows = [_shown(entry, now_us) for entry in _Edit.of(file, needed=True).entries()]
    widths = [max((len(row[key] or "-") for row in rows), default=0) for key in ("actor", "id")]
    lines = [
        f"{row['actor']:<{widths[0]}}  {row['id'] or '-':<{widths[1]}}  "
        f"{row['state']:<7}  {row['expires'] or '-'}"
        for row in rows
    ]
    call_of(ctx).output.result({"tokens": rows}, *lines or ["no tokens"])


@app.command("revoke", example="omnigraph token revoke --file tokens.json --actor ada --dry-run")
def revoke(
    ctx: typer.Context,
    file: File,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="NAME", help="All tokens of this actor.")
    ] = None,
    id_: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The one token that the list shows with this id.")
    ] = None,
) -> None:
    """Take tokens out of the file; a server that reads it refuses them a second later."""
    call = call_of(ctx)
    if actor is None and id_ is None:
        raise InvalidRequest("no token was named", remedy="Give --actor, --id, or both")
    dry_run = call.settings.dry_run
    if dry_run:
        edit = _Edit.of(file, needed=True)
        revoked = edit.remove(actor, id_)
    else:
        call.output.writing()
        with _editing(file, needed=True) as edit:
            revoked = edit.remove(actor, id_)
    names = [{"actor": entry.actor, "id": entry.name} for entry in revoked]
    verb = "would revoke" if dry_run else "revoked"
    call.output.result(
        {"file": str(file), "revoked": names, "dry_run": dry_run},
        *(f"{verb} token {entry.name or '-'} of {entry.actor}" for entry in revoked),
    )


def _made(expires: str | None, clock: Clock) -> tuple[str, dict[str, str]]:
    """Return a new token, and what is stored of it."""
    token = PREFIX + new_secret()
    stored = {"sha256": digest_of(token).hex(), "id": new_id()}
    if expires is not None:
        stored["expires"] = write_instant(expiry_of(read_duration(expires), clock) // 1000)
    return token, stored


def _shown(entry: TokenEntry, now_us: int) -> dict[str, str | None]:
    ends = None if entry.expires_us is None else write_instant(entry.expires_us // 1000)
    state = "expired" if entry.expired(now_us) else "hashed" if entry.hashed else "plain"
    return {"actor": entry.actor, "id": entry.name, "expires": ends, "state": state}


# -- editing the file ----------------------------------------------------------------------------------


@dataclass(slots=True, repr=False)
class _Edit:
    """A document of tokens as it is written, and where it belongs."""

    file: Path
    document: dict[str, Any]

    @staticmethod
    def of(file: Path, *, needed: bool = False) -> _Edit:
        """Read a file, or refuse what a server would; an absent one is empty unless it is needed."""
        try:
            text = file.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            if needed:
                raise _unreadable(file, "there is no such file") from None
            return _Edit(file, {})
        except OSError as error:
            raise _unreadable(file, error.strerror or "it cannot be read") from error
        except UnicodeDecodeError:
            raise _unreadable(file, "it is not UTF-8 text") from None
        origin = repr(str(file))
        read_tokens(text, origin)
        return _Edit(file, read_document(text, origin))

    def entries(self) -> Iterator[TokenEntry]:
        """Yield the tokens in the order of the file."""
        for name, value in self.document.items():
            for token in value if isinstance(value, list) else [value]:
                yield self._entry(name, token)

    def add(self, actor: str, stored: dict[str, str]) -> None:
        """Give an actor one token more."""
        name = next((name for name in self.document if name.strip() == actor), actor)
        had = self.document.get(name, [])
        self.document[name] = [*(had if isinstance(had, list) else [had]), stored]

    def remove(self, actor: str | None, id_: str | None) -> list[TokenEntry]:
        """Take out the tokens that both names fit, and return them."""
        removed: list[TokenEntry] = []
        for name, value in list(self.document.items()):
            kept = []
            for token in value if isinstance(value, list) else [value]:
                entry = self._entry(name, token)
                if actor in (None, entry.actor) and id_ in (None, entry.name):
                    removed.append(entry)
                else:
                    kept.append(token)
            if not kept:
                del self.document[name]
            elif isinstance(value, list):
                self.document[name] = kept
        if not removed:
            raise NotFound("the file has no such token", remedy="See those there are: omnigraph token list")
        return removed

    def _entry(self, name: str, token: Any) -> TokenEntry:
        return read_token(name.strip(), token, repr(str(self.file)), "a token")


@contextmanager
def _editing(file: Path, *, needed: bool = False) -> Iterator[_Edit]:
    """Change a file while no other edit does; if the block fails, it stays as it was."""
    target = Path(os.path.realpath(file))  # a link stays one
    try:
        with _locked(target.with_name(f".{target.name}.lock")):
            edit = _Edit.of(target, needed=needed)
            yield edit
            _replace(target, json.dumps(edit.document, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise InvalidRequest(
            f"cannot write {str(file)!r}: {error.strerror}", remedy="Check the path"
        ) from error


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    """Hold a lock that the system takes back when the process dies; its file stays, and is empty."""
    import fcntl

    held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _replace(target: Path, text: str) -> None:
    """Put a text in the place of a file, whole and on disk, readable by its owner only."""
    beside = target.with_name(f".{target.name}.{new_id()}")
    created = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    try:
        with os.fdopen(created, "w", encoding="utf-8") as sink:
            sink.write(text)
            sink.flush()
            os.fsync(sink.fileno())
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def _unreadable(file: Path, reason: str) -> InvalidRequest:
    return InvalidRequest(f"cannot read {str(file)!r}: {reason}", remedy="Check the path")
