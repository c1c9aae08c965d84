"""Grammar: the shape of one declaration, for lark's LALR parser.

    **text -> tokens -> parse tree** -> tree -> checked schema -> catalog

Room    language.schema. Wider than the language on purpose: it lets through forms that build.py then
        refuses with a message of their own ("interfaces take no annotations") instead of "unexpected '@'".
Rule    the lexer is contextual: a keyword is one only where the grammar expects it, so that a property may
        be called `node`. Every keyword ends at a word boundary. Nothing here recurses.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from omnigraph.language.lalr import Parser

GRAMMAR = r"""
declaration: interface | node | edge

interface: INTERFACE word clause* body
node:      NODE word clause* body
edge:      EDGE word ":" word "->" word clause* body?

?clause:    annotation | implements
implements: IMPLEMENTS word ("," word)*

body:     "{" _member* "}"
_member:  property | annotation
property: word ":" type

type:    _base OPTIONAL?
_base:   scalar | list | enum
scalar:  word arguments?
list:    "[" type "]"
enum:    ENUM "(" variant ("," variant)* ")"
variant: VARIANT | STRING

annotation: "@" word arguments?
arguments:  "(" (_argument ("," _argument)*)? ")"
_argument:  value | bounds | keyword
keyword:    word "=" value
value:      STRING | NUMBER | word
bounds:     NUMBER RANGE | NUMBER RANGE NUMBER | RANGE NUMBER | RANGE
word:       NAME | TYPE_NAME

INTERFACE.2:  /interface(?![A-Za-z0-9_])/
NODE.2:       /node(?![A-Za-z0-9_])/
EDGE.2:       /edge(?![A-Za-z0-9_])/
IMPLEMENTS.2: /implements(?![A-Za-z0-9_])/
ENUM.2:       /enum(?![A-Za-z0-9_])/
NAME:         /[a-z_][A-Za-z0-9_]*/
TYPE_NAME:    /[A-Z][A-Za-z0-9_]*/
VARIANT:      /[A-Za-z0-9_-]+/
STRING:       /"(?:[^"\\]|\\[\s\S])*"/
NUMBER:       /-?[0-9]+(?:\.[0-9]+)?(?![A-Za-z0-9_])/
RANGE:        ".."
OPTIONAL:     "?"

%ignore /[ \t\r\n]+/
%ignore /\/\/[^\n]*/
%ignore /\/\*[\s\S]*?\*\//
"""

TABLES = Path(__file__).with_name("tables.json")  # made from the grammar by scripts/parse_tables.py

# What a reader would call a terminal, in the order in which expectations are listed.
DISPLAY = {
    "INTERFACE": "'interface'",
    "NODE": "'node'",
    "EDGE": "'edge'",
    "NAME": "a name",
    "TYPE_NAME": "a type name",
    "VARIANT": "an enum value",
    "STRING": "a string",
    "NUMBER": "a number",
    "ENUM": "'enum'",
    "IMPLEMENTS": "'implements'",
    "COLON": "':'",
    "__ANON_0": "'->'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "COMMA": "','",
    "EQUAL": "'='",
    "AT": "'@'",
    "OPTIONAL": "'?'",
    "RANGE": "'..'",
    "$END": "the end of the declaration",
}


@cache
def parser() -> Parser:
    """Return the parser; it reads its tables when the first text comes."""
    return Parser.from_file(TABLES)
