"""Query: parsed queries resolved against a catalog, their parameters, and what can be said about them.

check.py          text or tree + catalog -> checked query
mutation.py       a checked mutation; where.py: its conditions with the parameters filled in
params.py         JSON values -> stored values of the parameters
"""

from omnigraph.catalog.query.check import CheckedQuery, check, compile_query, examine
from omnigraph.catalog.query.mutation import CheckedMutation
from omnigraph.catalog.query.params import BadParameters, bind_params, param_from_text

__all__ = [
    "BadParameters",
    "CheckedMutation",
    "CheckedQuery",
    "bind_params",
    "check",
    "compile_query",
    "examine",
    "param_from_text",
]
