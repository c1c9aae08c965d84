"""Streams: the bytes of an input, decompressed, in chunks; and the lines in them.

Paths, file objects, bytes and iterators of bytes all become one `ByteStream`.

Rule    nothing is held but the chunk being read and the line it ends in, whose length is bounded. Compression
        is recognised by its magic number, whatever the name says. An input that breaks off or is not text
        says where.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.engine.load.conform import InputNotFound, Progress, UnreadableInput

CHUNK = 1 << 20
LONGEST_RECORD = 32 << 20  # bytes of one record of a text: parsed, it takes several times its size
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
COMPRESSED_SUFFIXES = {".gz": "gzip", ".zst": "zstd"}
_BOM = "\ufeff"


class ByteStream:
    """Bytes that are pulled as they are needed, and counted."""

    def __init__(self, name: str, pull: Callable[[int], bytes]) -> None:
        self.name = name
        self.consumed = 0
        self.closed = False  # with `read`, what Arrow expects of a file
        self._pull = pull
        self._ahead = b""

    def read(self, size: int) -> bytes:
        """Return at most so many bytes; none at the end."""
        if self._ahead:
            content, self._ahead = self._ahead[:size], self._ahead[size:]
            return content
        content = self._pull(size)
        self.consumed += len(content)
        if len(content) > size:
            content, self._ahead = content[:size], content[size:]
        return content

    def head(self, size: int) -> bytes:
        """Return the next bytes without taking them; fewer only at the end."""
        content = b""
        while len(content) < size:
            more = self.read(size - len(content))
            if not more:
                break
            content += more
        self._ahead = content + self._ahead
        return content

    def close(self) -> None:
        """Take no more."""
        self.closed = True


def chunks(stream: ByteStream, progress: Progress) -> Iterator[bytes]:
    """Yield the content, decompressed."""
    codec = _codec(stream)
    source: Any = stream
    if codec is not None:
        source = pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), codec)
    while True:
        try:
            chunk = source.read(CHUNK)
        except (OSError, EOFError, pa.ArrowException) as error:
            what = "the compressed data is broken or cut off" if codec else "cannot be read"
            raise UnreadableInput(
                f"{stream.name}: {what} at byte {stream.consumed}: {error}",
                remedy="Make the file again or transfer it again",
                file=stream.name,
                byte=stream.consumed,
            ) from error
        progress(stream.consumed)
        if not chunk:
            return
        yield chunk


def _codec(stream: ByteStream) -> str | None:
    head = stream.head(4)
    codec = next((codec for magic, codec in _MAGIC.items() if head.startswith(magic)), None)
    named = COMPRESSED_SUFFIXES.get(Path(stream.name).suffix.lower())
    if named is not None and codec is None and head:
        raise UnreadableInput(
            f"{stream.name}: the name says {named}, but the content is not compressed that way",
            remedy="Rename the file, or compress it again",
            file=stream.name,
            byte=0,
        )
    return codec


def lines(stream: ByteStream, progress: Progress) -> Iterator[list[str]]:
    """Yield the lines of a text, many at a time, without their line ends; the last may lack one.

    Only LF ends a line; a CR before it is left for the reader of the line to strip.
    """
    rest: list[bytes] = []
    number, offset, waiting = 1, 0, 0
    for chunk in chunks(stream, progress):
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            rest.append(chunk)
            waiting += len(chunk)
            if waiting > LONGEST_RECORD:
                raise too_long(stream.name, number)
            continue
        content = b"".join([*rest, head])
        rest, waiting = [tail] if tail else [], len(tail)
        texts = _decode(content, stream.name, number, offset).split("\n")
        number += len(texts)
        offset += len(content) + 1
        yield texts
    if rest:
        yield [_decode(b"".join(rest), stream.name, number, offset)]


def too_long(name: str, line: int) -> UnreadableInput:
    """Return the error about a record that would take too much memory."""
    return UnreadableInput(
        f"{name}:{line}: the record is longer than {LONGEST_RECORD >> 20} MiB",
        remedy="Load values of such a size from Parquet or Arrow",
        file=name,
        line=line,
        limit=LONGEST_RECORD,
    )


def _decode(content: bytes, name: str, number: int, offset: int) -> str:
    try:
        text = content.decode()
        return text.removeprefix(_BOM) if offset == 0 else text
    except UnicodeDecodeError as error:
        line = number + content.count(b"\n", 0, error.start)
        raise UnreadableInput(
            f"{name}:{line}: broken UTF-8 at byte {offset + error.start} of the file",
            remedy="Write the file as UTF-8",
            file=name,
            line=line,
            byte=offset + error.start,
        ) from error


# -- where bytes come from ---------------------------------------------------------------------------


@dataclass(frozen=True)
class FileAt:
    """A file, or some of its bytes, to be opened when it is read; travels to other processes."""

    path: Path
    name: str
    begin: int = 0
    end: int | None = None

    @contextmanager
    def __call__(self) -> Iterator[ByteStream]:
        """Open it for the time of reading it."""
        try:
            file = self.path.open("rb", buffering=0)
        except FileNotFoundError:
            raise InputNotFound(
                f"there is no file {str(self.path)!r}", remedy="Check the path", path=str(self.path)
            ) from None
        except OSError as error:
            raise UnreadableInput(
                f"{self.name}: cannot be opened: {error.strerror}", file=self.name
            ) from error
        with file:
            file.seek(self.begin)
            yield ByteStream(self.name, file.read if self.end is None else self._bounded(file))

    def _bounded(self, file: IO[bytes]) -> Callable[[int], bytes]:
        left = (self.end or 0) - self.begin

        def pull(size: int) -> bytes:
            nonlocal left
            chunk = file.read(min(size, left)) if left else b""
            left -= len(chunk)
            return chunk

        return pull


def from_file(file: IO[Any], name: str) -> ByteStream:
    """Read a file object that somebody else opened, binary or text, and will close."""

    def pull(size: int) -> bytes:
        chunk = file.read(size)
        if isinstance(chunk, str):
            return _encode(chunk, name)
        return chunk or b""

    return ByteStream(name, pull)


def from_chunks(chunks: Iterable[bytes], name: str) -> ByteStream:
    """Read the content that an iterator hands out in parts."""
    source = iter(chunks)

    def pull(size: int) -> bytes:
        for chunk in source:
            if not isinstance(chunk, bytes | bytearray | memoryview):
                raise UnreadableInput(f"{name}: an iterator of bytes gave {type(chunk).__name__}", file=name)
            if chunk:
                return bytes(chunk)
        return b""

    return ByteStream(name, pull)


def _encode(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UnreadableInput(f"{name}: the text is not Unicode: {error.reason}", file=name) from error


def size_of(path: Path) -> int | None:
    """Return the size of a file, if it has one."""
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def file_name(file: Any) -> str:
    """Return what to call a file object in messages."""
    name = getattr(file, "name", None)
    return Path(name).name if isinstance(name, str) and name else "<file>"


def is_file(data: Any) -> bool:
    """Say whether something is a file object open for reading."""
    return isinstance(data, io.IOBase) or callable(getattr(data, "read", None))
