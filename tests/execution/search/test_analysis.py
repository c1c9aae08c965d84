"""Analysis: the steps of section 11.1 in their order, and how they compare with Lance's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.query import MatchQuery

from omnigraph.execution.search.text_index import PIECE_ROWS, STOP_WORDS, analyse, invert
from omnigraph.storage.tables.indexes import TEXT

LETTERS = "abcXYZ059 \t-_.'éÉßøŁ中й\u00a0—\u0301İﬁ"
SOME_WORDS = """
    connect connects connected connecting connection connections connectivity generate generates generated
    generating generator general generally generous generously run runs running runner sky skies dying news
    happy happily happiness relational conditional rational hopping hoped hope national formative caresses
    ponies ties cats fed agreed disabled matting mating meeting milling messing filing failing
    sensational traditional reference colonizer plotted triplicate dependent probate rate controllable roll
    university universe universal organisation organise organ police policy past paste owned owning willing
"""
STEMS = "abl ion nat hop pl cri fall agre y oper str relat argu skill bab wave tang tr"
ENDINGS = """
    s es ed eed ing ingly edly ies ly li tional enci anci abli entli izer ization ational ator alism
    aliti alli fulness ousli ousness iveness iviti biliti ogi fulli lessli ative icate iciti ical ful
    ness al ance ence er ic able ible ant ement ment ent ism ate iti ous ive ize ion e l ll
"""
WORDS = SOME_WORDS.split()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param(" \t\n…!", [], id="only separators"),
        pytest.param("Hello, World", ["hello", "world"], id="case and punctuation"),
        pytest.param("state-of-the_art", ["state", "art"], id="every separator splits, stop words go"),
        pytest.param("don't", ["don", "t"], id="an apostrophe splits"),
        pytest.param("x86 3.14", ["x86", "3", "14"], id="digits are part of words"),
        pytest.param("the The THE these", [], id="stop words in any case"),
        pytest.param("running ran runs", ["run", "ran", "run"], id="stems, with repetitions"),
        pytest.param("Crème Brûlée", ["creme", "brule"], id="accents go before the stem is taken"),
        pytest.param("résumé", ["resum"], id="an accented word meets its plain twin"),
        pytest.param("cafe\u0301s", ["cafe"], id="an accent written apart belongs to its letter"),
        pytest.param(
            "Straße Ærø Łódź", ["strass", "aero", "lodz"], id="letters that Unicode does not take apart"
        ),
        pytest.param("ﬁve", ["five"], id="ligatures"),
        pytest.param("thé", [], id="folded before stop words are dropped"),
        pytest.param("owned willing", ["own", "will"], id="stop words are dropped before the stem is taken"),
        pytest.param("日本 йод άλφα", ["日本", "йод", "άλφα"], id="other scripts stay as they are"),
        pytest.param("ΣΑΣ", ["σασ"], id="lower case letter by letter"),
        pytest.param("a" * 40, ["a" * 40], id="forty characters"),
        pytest.param("a" * 41, [], id="more than forty"),
        pytest.param("é" * 40, ["e" * 40], id="characters are counted, not bytes"),
    ],
)
def test_tokens_of_a_text(text: str, tokens: list[str]) -> None:
    assert analyse(text) == tokens


def test_a_query_with_nothing_but_stop_words_has_no_tokens() -> None:
    assert analyse(" ".join(sorted(STOP_WORDS))) == []


@given(st.lists(st.none() | st.text(st.sampled_from(LETTERS), max_size=20), max_size=12))
def test_a_column_is_analysed_like_each_of_its_texts(texts: list[str | None]) -> None:
    half = len(texts) // 2
    column = pa.chunked_array([pa.array(texts[:half], pa.string()), pa.array(texts[half:], pa.string())])

    found = invert(column)

    expected = [Counter(analyse(text or "")) for text in texts]
    assert found.lengths.tolist() == [sum(one.values()) for one in expected]
    assert found.present.tolist() == [text is not None for text in texts]
    rows: list[Counter[str]] = [Counter() for _ in texts]
    for number, token in enumerate(found.tokens.to_pylist()):
        assert found.find(token) == found.span(number)
        for row, count in zip(found.rows[found.span(number)], found.counts[found.span(number)], strict=True):
            rows[row][token] = int(count)
    assert rows == expected


def test_long_columns_are_cut_into_portions_at_no_text_s_expense() -> None:
    texts = [f"w{number} w{number + 1}" for number in range(3 * PIECE_ROWS + 7)]

    found = invert(pa.chunked_array([pa.array(texts).slice(3)]))

    assert found.lengths.tolist() == [2] * (len(texts) - 3)
    for token, rows in (("w3", [0]), (f"w{PIECE_ROWS}", [PIECE_ROWS - 4, PIECE_ROWS - 3])):
        span = found.find(token)
        assert span is not None
        assert found.rows[span].tolist() == rows


# -- beside Lance


def index(tmp_path: Path, texts: list[str], **options: Any) -> lance.LanceDataset:
    made = lance.write_dataset(pa.table({"text": texts}), tmp_path / f"{len(texts)}.lance")
    made.create_scalar_index("text", "INVERTED", **options)
    return made


def found(dataset: lance.LanceDataset, query: str) -> set[int]:
    scanner = dataset.scanner(full_text_query=MatchQuery(query, "text"), columns=["_score"], with_row_id=True)
    return set(scanner.to_table()["_rowid"].to_pylist())


def suffixed() -> list[str]:
    """Return made-up words with the endings that stemming is about."""
    return sorted({stem + ending for stem in STEMS.split() for ending in ENDINGS.split()} | set(WORDS))


def test_lance_stems_words_into_the_same_groups(tmp_path: Path) -> None:
    """What the index finds for a word is what has its stem: else it could not name candidates."""
    words = suffixed()
    dataset = index(tmp_path, words, **TEXT)
    groups: dict[str, set[int]] = {}
    for number, word in enumerate(words):
        groups.setdefault(analyse(word)[0], set()).add(number)

    for word in words:
        assert found(dataset, word) == groups[analyse(word)[0]], word


def test_lance_drops_the_same_stop_words(tmp_path: Path) -> None:
    words = sorted(STOP_WORDS | set(WORDS) | {"not", "no", "nor", "would", "also", "upon"})
    dataset = index(tmp_path, words, stem=False)

    assert {word for word in words if not found(dataset, word)} == STOP_WORDS


def test_lance_folds_the_same_letters(tmp_path: Path) -> None:
    pairs = {
        "é": "e",
        "Å": "a",
        "ß": "ss",
        "ø": "o",
        "æ": "ae",
        "ł": "l",
        "ﬁ": "fi",
        "ñ": "n",
        "ç": "c",
        "þ": "th",
    }
    dataset = index(tmp_path, [f"q{letter}z" for letter in pairs], stem=False)

    for number, (letter, plain) in enumerate(pairs.items()):
        assert found(dataset, f"q{plain}z") >= {number}
        assert analyse(f"q{letter}z") == analyse(f"q{plain}z")


def test_where_lance_differs_search_follows_its_own_definition(tmp_path: Path) -> None:
    """The reasons why the index only names candidates; when one goes, more can be left to it."""
    dataset = index(tmp_path, ["résumé", "owned", "a" * 40])

    assert found(dataset, "resume") == set()  # stems first, folds after
    assert found(dataset, "owned") == set()  # stems first, drops stop words after
    assert found(dataset, "a" * 40) == set()  # drops words of forty already
    assert [analyse(text) for text in ("résumé", "owned")] == [analyse("resume"), ["own"]]
