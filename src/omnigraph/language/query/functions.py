"""Functions: the names that an expression may call, and with how many arguments.

Room    language.query. `now`, `date`, `datetime` and `shortest` have a form of their own in the tree.
"""

from __future__ import annotations

TEXT_MATCHES = {"search": (2, 2), "fuzzy": (2, 3), "match_text": (2, 2)}  # fewest and most arguments
RANKINGS = {"nearest": (2, 2), "bm25": (2, 2), "rrf": (2, 3)}
FUNCTIONS = TEXT_MATCHES | RANKINGS
AGGREGATES = ("count", "sum", "avg", "min", "max", "count_distinct", "collect")
