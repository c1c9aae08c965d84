"""Query: parsed queries resolved against a catalog, their parameters, and what can be said about them.

check.py          text or tree + catalog -> checked query; its parts are the check_*.py beside it
mutation.py       a checked mutation; read.py: a checked read
expressions.py    values and conditions of both
operands.py       constants, parameters, now(); values.py and restate.py: their stored forms
params.py         JSON values -> the values of the parameters
lint.py           text -> report; operation.py, columns.py, describe.py: descriptions for machines
"""

from omnigraph.catalog.query.check import CheckedQuery, check, compile_query, examine
from omnigraph.catalog.query.expressions import Parameter, Stored, Values, operand_value
from omnigraph.catalog.query.lint import LintReport, lint_queries, query_entry
from omnigraph.catalog.query.params import BadParameters, ParamText, bind_params
from omnigraph.catalog.query.statements import CheckedMutation, CheckedRead, assigned_value, page

__all__ = [
    "BadParameters",
    "CheckedMutation",
    "CheckedQuery",
    "CheckedRead",
    "LintReport",
    "ParamText",
    "Parameter",
    "Stored",
    "Values",
    "assigned_value",
    "bind_params",
    "check",
    "compile_query",
    "examine",
    "lint_queries",
    "operand_value",
    "page",
    "query_entry",
]
