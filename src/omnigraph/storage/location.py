"""Location: where a graph lives, and the small-object client for that place.

Room    storage. Addresses are parsed here once; everything below joins relative keys.
Given   a local path, `file://...` or an object-store URL, with storage options in Lance's spelling.
Gives   URIs for Lance, and an `Objects` client for the few things that are not Lance datasets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import obstore
from obstore import exceptions as store_errors
from obstore.store import LocalStore, from_url

from omnigraph.base.errors import InvalidRequest, StorageDenied, StorageError
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


def storage_failure(doing: str, error: BaseException) -> StorageError:
    """Return the error for a failure of the store that nothing more is known about."""
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
        if scheme in ("", "file"):
            path = unquote(urlparse(text).path) if scheme else text
            return cls(str(Path(path).expanduser().absolute()))
        if scheme not in OBJECT_SCHEMES:
            raise InvalidRequest(
                f"unsupported address {text!r}",
                remedy=f"Use a local path, file:// or one of {', '.join(s + '://' for s in OBJECT_SCHEMES)}",
            )
        return cls(text.rstrip("/"), dict(options or {}))

    @property
    def is_local(self) -> bool:
        """Whether the graph lives on a local file system, where durability is ours to ensure."""
        return "://" not in self.uri

    def join(self, *parts: str) -> str:
        """Return the URI of something below the root."""
        return "/".join((self.uri, *parts))

    @property
    def lance_options(self) -> dict[str, str] | None:
        """Storage options as Lance takes them."""
        return dict(self.options) or None

    @cached_property
    def objects(self) -> Objects:
        """The client for small immutable objects below the root."""
        return Objects(self)


class Objects:
    """Small immutable objects: create once, read, list, delete. Failures come out typed."""

    def __init__(self, location: Location) -> None:
        self._uri = location.uri
        self._local = location.is_local
        self._opened: Any = None if location.is_local else _remote(location)

    def _store(self, *, make: bool = False) -> Any:
        """Return the client; None for a local root that does not exist (and is not to be made)."""
        if self._opened is None and (make or Path(self._uri).is_dir()):
            self._opened = LocalStore(self._uri, mkdir=make)
        return self._opened

    def create(self, key: str, data: bytes) -> bool:
        """Write an object that must not exist yet; say whether it was this call that made it."""
        count_object_request(written=len(data))
        try:
            obstore.put(self._store(make=True), key, data, mode="create")
        except (store_errors.AlreadyExistsError, FileExistsError, store_errors.PreconditionError):
            return False
        except Exception as error:
            raise self._typed(error, f"writing {key}") from error
        return True

    def read(self, key: str) -> bytes | None:
        """Return an object's bytes, or None when there is no such object."""
        if (store := self._store()) is None:
            return None
        try:
            data = bytes(obstore.get(store, key).bytes())
        except (store_errors.NotFoundError, FileNotFoundError):
            count_object_request()
            return None
        except Exception as error:
            raise self._typed(error, f"reading {key}") from error
        count_object_request(read=len(data))
        return data

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""
        if (store := self._store()) is None:
            return
        count_object_request()
        try:
            obstore.delete(store, key)
        except (store_errors.NotFoundError, FileNotFoundError):
            return
        except Exception as error:
            raise self._typed(error, f"deleting {key}") from error

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield (key, size) of every object below a prefix."""
        if (store := self._store()) is None:
            return
        count_object_request()
        try:
            for page in obstore.list(store, prefix or None):
                for entry in page:
                    yield entry["path"], entry["size"]
        except (store_errors.NotFoundError, FileNotFoundError):
            return
        except Exception as error:
            raise self._typed(error, f"listing {prefix or 'the root'}") from error

    def _typed(self, error: Exception, doing: str) -> StorageError:
        match error:
            case (
                store_errors.PermissionDeniedError() | store_errors.UnauthenticatedError() | PermissionError()
            ):
                return StorageDenied(
                    f"storage refused access while {doing} at {self._uri}",
                    remedy="Check the credentials in storage_options or the environment, and the permissions",
                    storage_kind="configuration",
                )
            case store_errors.NotSupportedError():
                return StorageError(
                    f"storage cannot do this: {doing} at {self._uri}", storage_kind="permanent"
                )
            case _:
                return StorageError(
                    f"storage failed while {doing} at {self._uri}: {type(error).__name__}",
                    remedy="Check the address, the network and the storage service, then try again",
                    storage_kind="unknown",
                )


def _remote(location: Location) -> Any:
    client: Any = {k: v for k, v in location.options.items() if k in CLIENT_OPTIONS}
    config: Any = {k: v for k, v in location.options.items() if k not in CLIENT_OPTIONS}
    return from_url(location.uri, config=config or None, client_options=client or None)
