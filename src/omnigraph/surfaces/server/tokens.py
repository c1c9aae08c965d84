"""Bearer tokens: where they come from, how they are kept, and who holds the one that was presented.

Of a token only its SHA-256 digest is kept, and no value here shows, copies or pickles more than its first
digits. What was presented is compared with every entry, in the same time whether and where one matches.

A document of tokens is a JSON object: by actor a token, or a list of them. A token is a text, its digest as
`sha256:<hex>`, or `{"sha256": <hex>, "id": ..., "expires": <RFC 3339>}`, which `omnigraph token new` writes.
Messages name entries by their number: whoever mixed up a name and a token must not find it in a log.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, counted
from omnigraph.base.ids import Clock, SystemClock
from omnigraph.base.times import SECOND_US, instant_of
from omnigraph.surfaces.environment import variable

DEFAULT_ACTOR = "default"
RESERVED = "system:"
LONGEST_ACTOR = 200  # characters; it stands in every commit and log record
COMMAND_SECONDS = 30
CHECK_SECONDS = 1.0
HASHED = "sha256:"
SHOWN_DIGITS = 8
FORM = (
    'Write {"actor": "token"}, a list of tokens, "sha256:<hex>", or {"sha256": "<hex>", "expires": "<time>"}'
)
_HEX = re.compile(r"[0-9a-f]{64}")
_PRESENTABLE = re.compile(r"[!-~]+")  # what can stand in a header as one word
_WITH_OFFSET = re.compile(r".*([Zz]|[+-]\d{2}:\d{2})")

log = logging.getLogger(__name__)


def digest_of(token: str) -> bytes:
    """Return what is kept of a token."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def actor_fault(actor: str) -> str | None:
    """Return why a text cannot be an actor, or None if it can.

    >>> actor_fault("ada"), actor_fault("system:optimize")
    (None, "it begins with 'system:', which belongs to the system")
    """
    if not actor.strip():
        return "it is blank"
    if actor != actor.strip():
        return "it begins or ends with a blank"
    if actor.startswith(RESERVED):
        return f"it begins with {RESERVED!r}, which belongs to the system"
    if len(actor) > LONGEST_ACTOR:
        return f"it is longer than {LONGEST_ACTOR} characters"
    return None if actor.isprintable() else "it has a character that cannot be printed"


# -- one token ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class TokenEntry:
    """The digest of a token, its actor, and when it ends; it cannot be pickled, and shows no digest whole."""

    actor: str
    digest: bytes
    id: str | None = None
    expires_us: int | None = None
    hashed: bool = False  # as it was given

    @property
    def name(self) -> str | None:
        """What to call it: its id, or the first digits of a digest that was given as one."""
        if self.id is not None or not self.hashed:
            return self.id
        return f"{HASHED}{self.digest.hex()[:SHOWN_DIGITS]}"

    def expired(self, now_us: int) -> bool:
        """Say whether it has ended."""
        return self.expires_us is not None and self.expires_us <= now_us

    def __repr__(self) -> str:
        return f"TokenEntry(actor={self.actor!r}, id={self.id!r}, expires_us={self.expires_us})"

    def __reduce_ex__(self, _: Any) -> NoReturn:
        raise TypeError("tokens are not copied out of the process that checks them")


def holder(presented: str, entries: Sequence[TokenEntry], now_us: int) -> str | None:
    """Return the actor whose token was presented, or None.

    Every entry is compared, whatever was found before: how long it takes tells nothing.
    """
    digest = digest_of(presented)
    actor: str | None = None
    for entry in entries:
        same = hmac.compare_digest(entry.digest, digest)
        if same and not entry.expired(now_us):
            actor = entry.actor
    return actor


# -- a document of tokens ----------------------------------------------------------------------------


def read_document(text: str, origin: str) -> dict[str, Any]:
    """Return a document of tokens as it is written, or raise InvalidRequest, which quotes nothing of it."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise _refused(origin, "a name stands twice in one object")
        return dict(pairs)

    document: Any = None
    try:
        document = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError):  # its message may quote the text: it is not passed on
        document = None
    if not isinstance(document, dict):
        raise _refused(origin, "it is not a JSON object")
    return document


def read_tokens(text: str, origin: str) -> tuple[TokenEntry, ...]:
    """Return the tokens of a document, each as its digest, or raise InvalidRequest."""
    entries: list[TokenEntry] = []
    for number, (name, value) in enumerate(read_document(text, origin).items(), start=1):
        where, actor = f"entry {number}", name.strip()
        if (fault := actor_fault(actor)) is not None:
            raise _refused(origin, f"{where}: the actor cannot be used: {fault}")
        for token in value if isinstance(value, list) else [value]:
            entries.append(read_token(actor, token, origin, where))
    return _distinct(entries, origin)


def read_token(actor: str, value: Any, origin: str, where: str) -> TokenEntry:
    """Return one token of an actor."""
    if isinstance(value, dict):
        return _from_object(actor, value, origin, where)
    if not isinstance(value, str):
        raise _refused(origin, f"{where}: a token is a text or an object")
    text = value.strip()
    if text.startswith(HASHED):
        return TokenEntry(actor, _digest(text.removeprefix(HASHED), origin, where), hashed=True)
    if not text:
        raise _refused(origin, f"{where}: a token is blank")
    if not _PRESENTABLE.fullmatch(text):
        raise _refused(origin, f"{where}: a token has a blank or a character that no header can carry")
    return TokenEntry(actor, digest_of(text))


def _from_object(actor: str, value: Mapping[str, Any], origin: str, where: str) -> TokenEntry:
    if not value.keys() <= {"sha256", "id", "expires"}:
        raise _refused(origin, f"{where}: an object has sha256, id and expires, and nothing else")
    if not all(isinstance(part, str) for part in value.values()):
        raise _refused(origin, f"{where}: sha256, id and expires are texts")
    expires = value.get("expires")
    return TokenEntry(
        actor,
        _digest(value.get("sha256", ""), origin, where),
        value.get("id"),
        None if expires is None else _expiry(expires, origin, where),
        hashed=True,
    )


def _digest(text: str, origin: str, where: str) -> bytes:
    written = text.strip().lower()
    if not _HEX.fullmatch(written):
        raise _refused(origin, f"{where}: a SHA-256 digest has 64 hexadecimal digits")
    return bytes.fromhex(written)


def _expiry(text: str, origin: str, where: str) -> int:
    moment: int | None = None
    try:
        # A day or a time without offset would end at another moment than its writer meant.
        if _WITH_OFFSET.fullmatch(text):
            moment = instant_of(datetime.fromisoformat(text.upper())) * 1000
    except ValueError:
        moment = None
    if moment is None:
        raise _refused(origin, f"{where}: expires is not a time such as 2027-01-31T00:00:00Z")
    return moment


def _distinct(entries: Sequence[TokenEntry], origin: str) -> tuple[TokenEntry, ...]:
    """Refuse a token that two actors hold: which of them asks could not be told."""
    owners: dict[bytes, str] = {}
    for entry in entries:
        if owners.setdefault(entry.digest, entry.actor) != entry.actor:
            raise _refused(origin, "one token belongs to two actors")
    return tuple(entries)


def _refused(origin: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"the tokens of {origin} cannot be used: {reason}", remedy=FORM)


# -- files that change -------------------------------------------------------------------------------


class FileWatch:
    """Says whether a file was replaced or written; looks at most once a second, and never waits."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._looked = clock.monotonic()
        self._seen = self._signature()

    def changed(self) -> bool:
        """Say whether the file is another than at the last look."""
        now = self._clock.monotonic()
        if now - self._looked < CHECK_SECONDS:
            return False
        self._looked = now
        signature = self._signature()
        changed = signature != self._seen
        self._seen = signature
        return changed

    def _signature(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


# -- where tokens come from --------------------------------------------------------------------------


class TokenSource:
    """The tokens of a server: those of the environment, and those of a file or a command, read again.

    Safe for many threads: the entries are one value, which is replaced as a whole.
    """

    def __init__(
        self,
        fixed: Sequence[TokenEntry] = (),
        *,
        file: Path | None = None,
        command: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._fixed = tuple(fixed)
        self._clock = clock or SystemClock()
        self._command = command
        self._watch = None if file is None else FileWatch(file, self._clock)
        self._from_command = self._ask(command)
        self._lock = threading.Lock()
        self._entries = self._read()
        if not self._entries:
            raise InvalidRequest(
                "the sources of tokens hold no token: every request would be refused",
                remedy="Make one with: omnigraph token new --file FILE --actor NAME",
            )

    @staticmethod
    def from_environment(
        environment: Mapping[str, str] = os.environ,
        *,
        file: Path | None = None,
        command: str | None = None,
        clock: Clock | None = None,
    ) -> TokenSource | None:
        """Return the tokens that a server is given, or None if it is given none.

        `file` and `command` are those of `--tokens` and `--tokens-command`; `file` takes the place of the
        file and the JSON that variables name.
        """
        fixed: list[TokenEntry] = []
        if (single := variable("SERVER_BEARER_TOKEN", environment)) is not None:
            fixed.append(read_token(DEFAULT_ACTOR, single, "SERVER_BEARER_TOKEN", "the variable"))
        named = variable("SERVER_BEARER_TOKENS_FILE", environment)
        inline = variable("SERVER_BEARER_TOKENS_JSON", environment)
        if file is None and named is not None:
            file = Path(named)
        if file is None and inline is not None:
            fixed += read_tokens(inline, "SERVER_BEARER_TOKENS_JSON")
        if not fixed and file is None and command is None and inline is None:
            return None
        return TokenSource(fixed, file=file, command=command, clock=clock)

    def __repr__(self) -> str:
        return f"TokenSource({counted(len(self._entries), 'token')})"

    def __reduce_ex__(self, _: Any) -> NoReturn:
        raise TypeError("tokens are not copied out of the process that checks them")

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def actors(self) -> tuple[str, ...]:
        """Who has a token, by name."""
        return tuple(sorted({entry.actor for entry in self._entries}))

    def holder(self, presented: str) -> str | None:
        """Return the actor whose token was presented, or None."""
        if self._watch is not None:
            self._look(self._watch)
        return holder(presented, self._entries, self._clock.now_us())

    def reload(self) -> bool:
        """Read the file and ask the command again, as at SIGHUP; say whether that went well.

        If it did not, the tokens there were stay, and a record says why. Waits for the command.
        """
        with self._lock:
            try:
                self._from_command = self._ask(self._command)
                self._entries = self._read()
            except InvalidRequest as error:
                log.error("the tokens were not reloaded, the earlier ones stay: %s", error.message)
                return False
        log.info("reloaded the tokens: %s", counted(len(self._entries), "token"))
        return True

    def _look(self, watch: FileWatch) -> None:
        """Read the file if it has changed; a thread that finds another one at it does not wait."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if watch.changed():
                self._entries = self._read()
                log.info("the tokens have changed: %s", counted(len(self._entries), "token"))
        except InvalidRequest as error:
            log.error("the tokens were not reloaded, the earlier ones stay: %s", error.message)
        finally:
            self._lock.release()

    def _read(self) -> tuple[TokenEntry, ...]:
        return _distinct([*self._fixed, *self._from_command, *self._from_file()], "all sources together")

    def _from_file(self) -> Iterator[TokenEntry]:
        if self._watch is None:
            return
        try:
            text = self._watch.path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        else:
            yield from read_tokens(text, f"{str(self._watch.path)!r}")
            return
        raise _refused(f"{str(self._watch.path)!r}", f"it cannot be read: {reason}")

    @staticmethod
    def _ask(command: str | None) -> tuple[TokenEntry, ...]:
        """Run a command that prints a document of tokens."""
        if command is None:
            return ()
        fault = "it cannot be run"
        try:
            ran = subprocess.run(
                shlex.split(command),
                stdin=subprocess.DEVNULL,
                capture_output=True,  # what it says on stderr may name secrets, too
                timeout=COMMAND_SECONDS,
                check=False,
            )
            if ran.returncode == 0:
                return read_tokens(ran.stdout.decode(), "the tokens command")
            fault = f"it ended with exit code {ran.returncode}"
        except subprocess.TimeoutExpired:
            fault = f"it did not end within {COMMAND_SECONDS} s"
        except UnicodeDecodeError:
            fault = "it did not print UTF-8 text"
        except (OSError, ValueError, IndexError):
            pass
        raise InvalidRequest(
            f"the tokens command failed: {fault}", remedy="Run it by hand; it has to print the JSON of tokens"
        )


def expiry_of(duration_us: int, clock: Clock) -> int:
    """Return when a token ends that is made now, in microseconds; whole seconds."""
    return (clock.now_us() + duration_us) // SECOND_US * SECOND_US
