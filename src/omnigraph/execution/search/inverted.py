"""Inverted: a first search by Lance's full-text index, before the texts are in memory.

Room    execution.search. The index names candidates and analysis.py decides. Lance's analyser takes the same
        steps in another order, which makes no difference to words in ASCII when stop words and long words are
        kept (storage.tables.indexes.TEXT): so every match in ASCII is among what the index finds, and texts
        with other letters are candidates without being asked. They are found by a scan, which is much
        cheaper than analysis.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.query import MatchQuery

from omnigraph.execution.entities import EntityTable, Ordinals
from omnigraph.execution.search.analysis import analyse, plain_word, words
from omnigraph.execution.search.postings import invert
from omnigraph.storage.tables.index_specs import IndexKind, IndexSpec
from omnigraph.storage.tables.indexes import TEXT
from omnigraph.storage.tables.predicate import ADDRESS

MOST = 8  # one row in so many: with more candidates, analysing all texts once and for all is worth it


def matches_by_index(table: EntityTable, column: str, query: str) -> Ordinals | None:
    """Return the entities whose text has some token of the query; None where the index does not help."""
    tokens = set(analyse(query))
    if not tokens:
        return np.zeros(0, np.int64)
    if not _complete(table, column):
        return None
    hits = _found(table, column, query)
    if len(hits) * MOST > table.rows:
        return None
    candidates = np.union1d(hits, _foreign(table, column))
    if len(candidates) * MOST > table.rows:
        return None
    texts = invert(pa.chunked_array([table.take(column, candidates)]))
    spans = (texts.find(token) for token in tokens)
    rows = [texts.rows[span] for span in spans if span is not None]
    found: Ordinals = candidates[np.unique(np.concatenate([np.zeros(0, np.int32), *rows]))]
    return found


def _complete(table: EntityTable, column: str) -> bool:
    """Say whether a full-text index with the right analysis covers all rows."""
    name = IndexSpec(column, IndexKind.INVERTED).name
    for index in table.handle.describe_indices():
        if index.name == name:
            covered = {fragment for segment in index.segments for fragment in segment.fragment_ids}
            living = {fragment.fragment_id for fragment in table.handle.get_fragments()}
            details = index.details
            return living <= covered and all(details.get(key) == value for key, value in TEXT.items())
    return False


def _found(table: EntityTable, column: str, query: str) -> Ordinals:
    """Ask the index for the words of the query; it stems them as it stemmed those of the texts."""
    plain = [plain_word(word) for word in words(query)]
    asked = " ".join(word for word in plain if word is not None and word.isascii())
    if not asked:
        return np.zeros(0, np.int64)
    scanner = table.handle.scanner(
        full_text_query=MatchQuery(asked, column), columns=["_score"], with_row_id=True
    )
    return table.ordinals(scanner.to_table()["_rowid"].to_numpy())


def _foreign(table: EntityTable, column: str) -> Ordinals:
    """Return the entities whose text has letters beyond ASCII."""
    found = [np.zeros(0, np.uint64)]
    for batch in table.handle.scanner(columns=[column], with_row_address=True).to_batches():
        plain = pc.fill_null(pc.string_is_ascii(batch[column]), True)
        found.append(batch[ADDRESS].filter(pc.invert(plain)).to_numpy())
    return table.ordinals(np.concatenate(found))
