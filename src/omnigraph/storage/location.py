"""Location: where a graph is stored, and the client for its small objects.

An address is a local path, `file://...` or an object-store URL, with storage options in Lance's spelling. It
is parsed here once; everything below joins relative keys. Lance gets URIs, and the few things that are not
Lance datasets go through an `Objects` client.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from datetime import timedelta
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import unquote, urlparse

import obstore
from obstore import exceptions as store_errors
from obstore.store import from_url

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, StorageDenied, StorageError
from omnigraph.base.ids import new_id
from omnigraph.base.panics import is_panic
from omnigraph.storage.cost import count_object_request

OBJECT_SCHEMES = ("s3", "gs", "az", "abfss")
# Lance takes HTTP client settings in the same flat map; obstore wants them apart.
CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_url",
        "timeout",
        "user_agent",
    }
)
CHUNK_BYTES = 1 << 20  # of an object that is read in pieces
PUT_BYTES = 8 << 20  # what is larger goes to an object store in parts of this size
PARTS_AT_ONCE = 3  # of one object: this times the size of a part is what an upload holds in memory
BEING_WRITTEN_US = 3_600_000_000  # a younger file that is not finished may be one that somebody is writing
UNFINISHED = "__unfinished"  # below a local root: files that are being written, before they have their name
LANCE_ONLY = frozenset({"download_retry_count"})  # means nothing to the client for small objects

CHECK_CREDENTIALS = "Check the credentials in storage_options or the environment, and the permissions"
EXPIRED = "The credentials have expired: get new ones, and open the graph again if storage_options held them"
# What S3 calls a refusal, in the text of its answer; clients hand some of them on as failures of any sort.
REFUSALS = {
    "ExpiredToken": EXPIRED,
    "TokenRefreshRequired": EXPIRED,
    "InvalidAccessKeyId": CHECK_CREDENTIALS,
    "SignatureDoesNotMatch": CHECK_CREDENTIALS,
    "RequestTimeTooSkewed": "The clock of this machine differs too much from the store's: set it right",
}


def denial(doing: str, error: BaseException) -> StorageDenied | None:
    """Return the error for a refusal of the store, if that is what its answer calls it."""
    answer = f"{error} {error.__cause__ or ''}"
    name = next((name for name in REFUSALS if name in answer), None)
    if name is None:
        return None
    return StorageDenied(
        f"storage refused access while {doing}: {name}",
        remedy=REFUSALS[name],
        storage_kind="configuration",
    )


def storage_failure(doing: str, error: BaseException) -> StorageError:
    """Return the error for a failure of the store that nothing more is known about."""
    denied = denial(doing, error)
    if denied is not None:
        return denied
    return StorageError(
        f"storage failed while {doing}: {error}",
        remedy="Nothing was published; check the storage service and its permissions, then try again",
        storage_kind="unknown",
    )


@dataclass(frozen=True)
class Location:
    """The root of one graph."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets

    @classmethod
    def parse(cls, address: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Location:
        """Accept a local path, `file://` or an object-store URL.

        >>> Location.parse("s3://bucket/kb/").uri
        's3://bucket/kb'
        >>> Location.parse("file:///tmp/kb").uri
        '/tmp/kb'
        """
        text = os.fspath(address).strip()
        if not text:
            raise InvalidRequest("the graph address is empty", remedy="Give a path or an s3:// URL")
        scheme = urlparse(text).scheme if "://" in text else ""
        if scheme and urlparse(text).password is not None:
            raise InvalidRequest(
                "the graph address has a password in it, and addresses are shown and logged",
                remedy="Give credentials as storage options, or in the variables of the store",
            )
        if scheme in ("", "file"):
            path = unquote(urlparse(text).path) if scheme else text
            try:
                return cls(str(Path(path).expanduser().absolute()))
            except RuntimeError as error:  # of a user that this machine does not know
                raise InvalidRequest(
                    f"cannot tell which folder {text!r} is: {error}", remedy="Give the path in full"
                ) from error
        if scheme not in OBJECT_SCHEMES:
            raise InvalidRequest(
                f"unsupported address {text!r}",
                remedy=f"Use a local path, file:// or one of {', '.join(s + '://' for s in OBJECT_SCHEMES)}",
            )
        location = cls(text.rstrip("/"), dict(options or {}))
        if options:
            _ = location.objects  # made now, so that a wrong option is refused where it was given
        return location

    @cached_property
    def is_local(self) -> bool:
        """Whether the graph lives on a local file system, where durability is ours to ensure."""
        return "://" not in self.uri

    def join(self, *parts: str) -> str:
        """Return the URI of something below the root."""
        return "/".join((self.uri, *parts))

    def reach(self, address: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Location:
        """Return another location: without options, one on a store of this kind is reached as this one is.

        >>> graph = Location.parse("s3://bucket/kb", {"region": "eu-1"})
        >>> graph.reach("s3://other/out").options, graph.reach("gs://other/out").options
        ({'region': 'eu-1'}, {})
        """
        alike = urlparse(os.fspath(address)).scheme == urlparse(self.uri).scheme
        return Location.parse(address, self.options if options is None and alike else options)

    def below(self, *parts: str) -> Location:
        """Return a location below this one, reached in the same way."""
        return Location(self.join(*parts), self.options)

    @property
    def lance_options(self) -> dict[str, str] | None:
        """Storage options as Lance takes them."""
        return dict(self.options) or None

    def __reduce__(self) -> tuple[type[Location], tuple[str, dict[str, str]]]:
        """Travel as a plain value: what was opened here stays here."""
        return Location, (self.uri, dict(self.options))

    @contextmanager
    def new_file(self) -> Iterator[BinaryIO]:
        """Write the file at this location; there is none, or the old one, until the block has ended well."""
        if self.is_local:
            path = Path(self.uri)
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f".{path.name}.{new_id()}")
            try:
                with unfinished.open("wb") as file:
                    yield file
                unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
        else:
            folder, _, name = self.uri.rpartition("/")
            with RemoteObjects(Location(folder, self.options)).writer(name) as upload:
                yield upload

    @cached_property
    def objects(self) -> Objects:
        """The client for small immutable objects below the root."""
        return LocalObjects(self.uri) if self.is_local else RemoteObjects(self)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object as a listing shows it; the time is the store's own, or that of the local disk."""

    key: str
    size: int
    modified_us: int


def abandoned(entries: Iterable[StoredObject], now_us: int) -> list[StoredObject]:
    """Return the files among some that whoever was writing them never finished, and gave up by now."""
    prefix = f"{UNFINISHED}/"
    return [e for e in entries if e.key.startswith(prefix) and e.modified_us < now_us - BEING_WRITTEN_US]


class Objects(Protocol):
    """Small immutable objects: create once, read, list, delete. Failures come out typed."""

    def create(self, key: str, data: bytes) -> bool:
        """Write an object that must not exist yet; say whether it was this call that made it."""
        ...

    def read(self, key: str) -> bytes | None:
        """Return an object's bytes, or None when there is no such object."""
        ...

    def chunks(self, key: str) -> Iterator[bytes] | None:
        """Return an object's bytes in pieces, or None when there is no such object."""
        ...

    def ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Return the bytes of an object from each start to its stop, or to its end; None if there is none."""
        ...

    def write(
        self, key: str, chunks: Iterable[bytes], *, new: bool = False, sync: bool = False
    ) -> int | None:
        """Write an object from pieces, whole or not at all; return its size.

        With `new`, one that exists stays as it is, and the answer is None. `sync` makes the content
        durable before it has its name, where that is ours to do.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""
        ...

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield (key, size) of every object below a prefix."""
        ...

    def entries(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield every object below a prefix, with the time when it was written."""
        ...


class LocalObjects:
    """Objects as files. Plain system calls: their errors say what is wrong, where the client's do not."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object that must not exist yet; say whether it was this call that made it."""
        count_object_request(written=len(data))
        path = self._root / key
        part = path.with_name(f"{path.name}.{new_id()}.part")
        with _typed(f"writing {key}", str(self._root)):
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(data)
            try:
                os.link(part, path)  # atomic, whole, and refused when the name is taken
            except FileExistsError:
                return False
            finally:
                part.unlink()
        return True

    def read(self, key: str) -> bytes | None:
        """Return an object's bytes, or None when there is no such object."""
        with _typed(f"reading {key}", str(self._root)):
            try:
                data = (self._root / key).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        count_object_request(read=len(data))
        return data

    def chunks(self, key: str) -> Iterator[bytes] | None:
        """Return an object's bytes in pieces, or None when there is no such object."""
        with _typed(f"reading {key}", str(self._root)):
            try:
                file = open(self._root / key, "rb", buffering=0)  # noqa: SIM115 - closed by whoever reads to the end
            except (FileNotFoundError, NotADirectoryError):
                return None
        return _pieces(file, key, str(self._root))

    def ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Return the bytes of an object from each start to its stop, or to its end; None if there is none."""
        with _typed(f"reading {key}", str(self._root)):
            try:
                with open(self._root / key, "rb", buffering=0) as file:
                    parts = [os.pread(file.fileno(), stop - start, start) for start, stop in ranges]
            except (FileNotFoundError, NotADirectoryError):
                return None
        count_object_request(read=sum(map(len, parts)))
        return parts

    def write(
        self, key: str, chunks: Iterable[bytes], *, new: bool = False, sync: bool = False
    ) -> int | None:
        """Write an object from pieces, whole or not at all; return its size, or None if it was there."""
        path, part = self._root / key, self._root / UNFINISHED / new_id()
        with _typed(f"writing {key}", str(self._root)):
            path.parent.mkdir(parents=True, exist_ok=True)
            part.parent.mkdir(parents=True, exist_ok=True)
            try:
                size = _fill(part, chunks, sync=sync)
                if not new:
                    part.replace(path)
                else:
                    os.link(part, path)
            except FileExistsError:
                return None
            finally:
                part.unlink(missing_ok=True)
        count_object_request(written=size)
        return size

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""
        count_object_request()
        with _typed(f"deleting {key}", str(self._root)):
            (self._root / key).unlink(missing_ok=True)

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield (key, size) of every object below a prefix."""
        return ((entry.key, entry.size) for entry in self.entries(prefix))

    def entries(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield every object below a prefix, with the time when it was written."""
        count_object_request()
        with _typed(f"listing {prefix or 'the root'}", str(self._root)):
            try:
                for folder, _, names in os.walk(self._root / prefix, onerror=_raise):
                    for name in sorted(names):
                        path = Path(folder, name)
                        try:
                            status = path.stat()
                        except FileNotFoundError:  # gone since its folder was read
                            continue
                        key = path.relative_to(self._root).as_posix()
                        yield StoredObject(key, status.st_size, status.st_mtime_ns // 1000)
            except (FileNotFoundError, NotADirectoryError):
                return


class RemoteObjects:
    """Objects in an object store."""

    def __init__(self, location: Location) -> None:
        self._uri = location.uri
        self._store = _client(location)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object that must not exist yet; say whether it was this call that made it."""
        count_object_request(written=len(data))
        with _typed(f"writing {key}", self._uri):
            try:
                obstore.put(self._store, key, data, mode="create")
            except (store_errors.AlreadyExistsError, FileExistsError, store_errors.PreconditionError):
                return False
        return True

    def read(self, key: str) -> bytes | None:
        """Return an object's bytes, or None when there is no such object."""
        with _typed(f"reading {key}", self._uri):
            try:
                data = bytes(obstore.get(self._store, key).bytes())
            except (store_errors.NotFoundError, FileNotFoundError):
                return None
        count_object_request(read=len(data))
        return data

    def chunks(self, key: str) -> Iterator[bytes] | None:
        """Return an object's bytes in pieces, or None when there is no such object."""
        count_object_request()
        with _typed(f"reading {key}", self._uri):
            try:
                answer = obstore.get(self._store, key)
            except (store_errors.NotFoundError, FileNotFoundError):
                return None
        return self._pieces(answer.stream(min_chunk_size=CHUNK_BYTES), key)

    def _pieces(self, stream: Any, key: str) -> Iterator[bytes]:
        with _typed(f"reading {key}", self._uri):
            yield from map(bytes, stream)

    def ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Return the bytes of an object from each start to its stop, or to its end; None if there is none."""
        starts, ends = [start for start, _ in ranges], [stop for _, stop in ranges]
        with _typed(f"reading {key}", self._uri):
            try:
                parts = [
                    bytes(part) for part in obstore.get_ranges(self._store, key, starts=starts, ends=ends)
                ]
            except (store_errors.NotFoundError, FileNotFoundError):
                return None
        for part in parts:
            count_object_request(read=len(part))
        return parts

    def write(
        self, key: str, chunks: Iterable[bytes], *, new: bool = False, sync: bool = False
    ) -> int | None:
        """Write an object from pieces, whole or not at all; return its size, or None if it was there."""
        pieces = iter(chunks)
        first = b"".join(islice(pieces, PUT_BYTES // CHUNK_BYTES))
        following = next(pieces, None)
        if new:
            data = b"".join((first, following or b"", *pieces))
            return len(data) if self.create(key, data) else None
        if following is None:
            count_object_request(written=len(first))
            with _typed(f"writing {key}", self._uri):
                obstore.put(self._store, key, first)
            return len(first)
        with self.writer(key) as upload:
            for piece in chain((first, following), pieces):
                upload.write(piece)
            return upload.tell()

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""
        count_object_request()
        with _typed(f"deleting {key}", self._uri), suppress(store_errors.NotFoundError, FileNotFoundError):
            obstore.delete(self._store, key)

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield (key, size) of every object below a prefix."""
        return ((entry.key, entry.size) for entry in self.entries(prefix))

    def entries(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield every object below a prefix, with the time when it was written."""
        count_object_request()
        with _typed(f"listing {prefix or 'the root'}", self._uri):
            try:
                for page in obstore.list(self._store, prefix or None):
                    for entry in page:
                        modified_us = round(entry["last_modified"].timestamp() * 1e6)
                        yield StoredObject(entry["path"], entry["size"], modified_us)
            except store_errors.GenericError:
                self._check_access(f"{prefix}/__probe".lstrip("/"))
                raise

    def _check_access(self, key: str) -> None:
        """Raise if access is refused: a refused listing looks like any failure, a refused read does not."""
        try:
            self.read(key)
        except StorageDenied:
            raise
        except StorageError:
            return

    @contextmanager
    def writer(self, key: str) -> Iterator[BinaryIO]:
        """Give a file to write an object's bytes to; there is no object until the block has ended well."""
        with _typed(f"writing {key}", self._uri):
            upload = obstore.open_writer(
                self._store, key, buffer_size=PUT_BYTES, max_concurrency=PARTS_AT_ONCE
            )
            file = _Upload(upload)
            try:
                yield cast(BinaryIO, file)
                upload.close()
            finally:
                count_object_request(written=file.tell())

    def move(self, key: str, to: str) -> None:
        """Give an object another name; the store copies it, and then forgets the old one."""
        count_object_request()
        with _typed(f"writing {to}", self._uri):
            obstore.rename(self._store, key, to)


class _Upload(io.RawIOBase):
    """An upload as Python's files are: others ask them whether they are closed, and where they are."""

    def __init__(self, upload: Any) -> None:
        self._upload = upload
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._upload.write(data)
        self._position += size
        return size

    def tell(self) -> int:
        return self._position


@contextmanager
def _typed(doing: str, uri: str) -> Iterator[None]:
    """Turn the store's errors into ours."""
    try:
        yield
    except (store_errors.PermissionDeniedError, store_errors.UnauthenticatedError, PermissionError) as error:
        raise denial(f"{doing} at {uri}", error) or StorageDenied(
            f"storage refused access while {doing} at {uri}",
            remedy=CHECK_CREDENTIALS,
            storage_kind="configuration",
        ) from error
    except BaseException as error:
        if not isinstance(error, store_errors.BaseError | OSError) and not is_panic(error):
            raise
        raise denial(f"{doing} at {uri}", error) or StorageError(
            f"storage failed while {doing} at {uri}: {type(error).__name__}",
            remedy="Check the address, the network and the storage service, then try again",
            storage_kind="unknown",
        ) from error


def _pieces(file: BinaryIO, key: str, uri: str) -> Iterator[bytes]:
    with file, _typed(f"reading {key}", uri):
        while piece := file.read(CHUNK_BYTES):
            yield piece


def _fill(path: Path, chunks: Iterable[bytes], *, sync: bool) -> int:
    """Write a file from pieces and return its size."""
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
        if sync:
            file.flush()
            os.fsync(file.fileno())
        return file.tell()


def _raise(error: OSError) -> None:
    raise error


def _client(location: Location) -> Any:
    """Make the object-store client; refuse options that it does not know or cannot read."""
    try:
        _check_options(location.options)
        return _made_client(location)
    except InvalidRequest:
        raise
    except BaseException as error:
        if not isinstance(error, store_errors.BaseError | ValueError | TypeError) and not is_panic(error):
            raise
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InvalidRequest(
            f"the storage options do not fit {location.uri}: {reason}",
            remedy="Check the names and values in storage_options, and those in the environment",
        ) from error


def _check_options(options: Mapping[Any, Any]) -> None:
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidRequest(
                f"storage option {name!r} is {type(value).__name__}; names and values are text",
                remedy='Give storage_options as text, as in {"region": "eu-1"}',
            )
        if name.lower().endswith(("endpoint", "endpoint_url")) and not _is_web_address(value):
            raise InvalidRequest(
                f"storage option {name!r} is no address: {value!r}",
                remedy="Give it as http://host:port or https://host:port",
            )


def _is_web_address(text: str) -> bool:
    try:
        parsed = urlparse(text)
        return parsed.scheme in ("http", "https") and bool(parsed.hostname) and (parsed.port or 1) > 0
    except ValueError:
        return False


def _made_client(location: Location) -> Any:
    """Make the client from options in Lance's spelling."""
    options = {key: value for key, value in location.options.items() if key not in LANCE_ONLY}
    client: Any = {key: options.pop(key) for key in list(options) if key in CLIENT_OPTIONS}
    retry: Any = {}
    if "client_max_retries" in options:
        retry["max_retries"] = int(options.pop("client_max_retries"))
    if "client_retry_timeout" in options:
        retry["retry_timeout"] = timedelta(seconds=float(options.pop("client_retry_timeout")))
    config: Any = options
    return from_url(
        location.uri, config=config or None, client_options=client or None, retry_config=retry or None
    )
