"""Asking: the texts of one property to an embedder, and the vectors that come back to the spool.

    batches of rows -> distinct texts that are not in the spool -> requests, several at a time -> spool

What is held is one batch of rows and the requests under way. Every request that is answered is in the spool
before the next one begins, whatever becomes of the others: nothing is paid for twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError
from omnigraph.catalog.model import ID
from omnigraph.engine.embed.request import EmbedTarget, FillMode, wanted
from omnigraph.engine.embed.spool import VectorSpool, digest_of
from omnigraph.execution.search.embedding import Embedder, unit_vectors

REQUEST_BYTES = 256 << 10  # of text; providers bound the tokens of a request, and a token is a byte at least


@dataclass
class TextCounts:
    """What came of the texts of one property."""

    asked: int = 0
    reused: int = 0
    characters: int = 0


@dataclass
class TextBatch:
    """One request: texts by their digest, and the node that the first one is of."""

    first_id: str
    texts: dict[bytes, str] = field(default_factory=dict)
    bytes: int = 0


class Conversation:
    """Asks an embedder for the texts of one property, several requests at a time."""

    def __init__(
        self,
        embedder: Embedder,
        spool: VectorSpool,
        target: EmbedTarget,
        mode: FillMode,
        batch: int,
        answered: Callable[[TextCounts], None],
    ) -> None:
        self._embedder = embedder
        self._spool = spool
        self._target = target
        self._mode = mode
        self._batch = min(batch, embedder.batch)
        self._answered = answered
        self._next: TextBatch | None = None
        self._under_way: dict[Future[NDArray[np.float32]], TextBatch] = {}
        self.asked = TextCounts()

    def run(self, batches: Iterator[pa.Table]) -> TextCounts:
        """Ask for all that is wanted of some rows."""
        if self._embedder.concurrency == 1:  # by this thread: a function need not stand another one
            for rows in batches:
                for question in self._questions(rows):
                    self._keep(question, self._vectors(question))
            if self._next is not None:
                self._keep(self._next, self._vectors(self._next))
            return self.asked
        pool = ThreadPoolExecutor(self._embedder.concurrency, "omnigraph-embed")
        try:
            for rows in batches:
                for question in self._questions(rows):
                    self._send(pool, question)
            if self._next is not None:
                self._send(pool, self._next)
            while self._under_way:
                self._collect()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            self._save()
        return self.asked

    # -- what to ask -------------------------------------------------------------------------------

    def _questions(self, rows: pa.Table) -> Iterator[TextBatch]:
        """Yield the requests that are full."""
        chosen = rows.filter(pa.array(wanted(self._mode, rows, self._target)))
        texts: dict[bytes, tuple[str, str]] = {}
        ids, sources = chosen[ID].to_pylist(), chosen[self._target.source.column].to_pylist()
        for node_id, text in zip(ids, sources, strict=True):
            texts.setdefault(digest_of(text), (node_id, text))
        known = self._spool.known(texts)
        under_way = {digest for question in self._under_way.values() for digest in question.texts}
        if self._next is not None:
            under_way |= self._next.texts.keys()
        self.asked.reused += len(known)
        for digest, (node_id, text) in texts.items():
            if digest not in known and digest not in under_way:
                yield from self._added(node_id, digest, text)
        self._answered(self.asked)

    def _added(self, node_id: str, digest: bytes, text: str) -> Iterator[TextBatch]:
        size = len(text.encode())
        question = self._next
        if question is not None and (
            len(question.texts) >= self._batch or question.bytes + size > REQUEST_BYTES
        ):
            self._next = None
            yield question
            question = None
        if question is None:
            question = self._next = TextBatch(node_id)
        question.texts[digest] = text
        question.bytes += size

    # -- answers -----------------------------------------------------------------------------------

    def _vectors(self, question: TextBatch) -> NDArray[np.float32]:
        texts = list(question.texts.values())
        try:
            vectors = self._embedder.documents(texts, self._target.size)
            return unit_vectors(vectors, len(texts), self._target.size)
        except GraphError as error:
            where = f"{self._target.name}, {len(texts)} texts from node {question.first_id!r} on"
            GraphError.__init__(error, f"{error.message} ({where})", remedy=error.remedy, **error.fields)
            raise

    def _send(self, pool: ThreadPoolExecutor, question: TextBatch) -> None:
        while len(self._under_way) >= self._embedder.concurrency:
            self._collect()
        self._under_way[pool.submit(self._vectors, question)] = question

    def _collect(self) -> None:
        """Keep what has been answered; raise what went wrong."""
        done, _ = wait(self._under_way, return_when=FIRST_COMPLETED)
        for future in done:
            vectors = future.result()
            self._keep(self._under_way.pop(future), vectors)

    def _save(self) -> None:
        """Keep what was answered after something went wrong elsewhere: it is paid for."""
        for future, question in self._under_way.items():
            with suppress(Exception):
                if future.done() and not future.cancelled():
                    self._keep(question, future.result())

    def _keep(self, question: TextBatch, vectors: NDArray[np.float32]) -> None:
        self._spool.put(list(question.texts), vectors)
        self.asked.asked += len(question.texts)
        self.asked.characters += sum(map(len, question.texts.values()))
        self._answered(self.asked)
