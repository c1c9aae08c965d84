"""Grammar: the shape of one query, for lark's LALR parser.

    **text -> tokens -> parse tree** -> tree -> checked query

Wider than the language on purpose: any expression may stand where only some are legal, any word may be
called, and build.py refuses the rest with a message of its own.

The lexer is contextual: a keyword is one only where the grammar expects it. A word followed by a bracket is
a call or a block, so that `count` stays a legal name elsewhere. Where one clause or output follows another
without a comma, an operator continues the expression before it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from omnigraph.language.lalr import Parser
from omnigraph.language.syntax import SHARED_TERMINALS, WORD_END

# Space and comments between a word and its bracket; atomic, so that no text makes the lookahead slow.
_SKIP = r"(?>[ \t\r\n]+|\/\/[^\n]*|\/\*(?>[^*]|\*(?!\/))*\*\/)*+"
# A brace that opens clauses rather than the hop bounds of an edge of that name.
_BLOCK = rf"(?={_SKIP}\{{(?!{_SKIP}[0-9]+{_SKIP},))"

GRAMMAR = rf"""
query: QUERY word "(" _params? ")" note* "{{" (read | write) "}}"

_params: param ("," param)*
param:   VAR ":" type OPTIONAL?
type:    word | word "(" NUMBER ")" | list_type
list_type: "[" word "]"
note:    "@" word ("(" STRING ")")?

read:    MATCH block RETURN DISTINCT? "{{" _outputs "}}" order? _paging?
_paging: limit offset? | offset limit?
limit:   LIMIT (NUMBER | VAR)
offset:  OFFSET (NUMBER | VAR)

block:     "{{" _clause+ "}}"
_clause:   negation | exists | counted | optional | binding | traversal | filter
negation:  NOT_BLOCK block
exists:    EXISTS block
counted:   COUNT_BLOCK block COMPARE number
optional:  OPTIONAL_BLOCK block
binding:   VAR ":" word entries?
traversal: VAR edge VAR | VAR VAR ":" edge VAR
edge:      (word | UNDIRECTED) bounds?
bounds:    "{{" NUMBER "," NUMBER? "}}"
filter:    _condition

// Without a comma, a bracket would look like an index of the output before it.
_outputs: output ("," output | bare_output)* ","?
output:   _expr (AS word)?
bare_output: disjunction{{_bare_operand, _operand}} (AS word)? -> output
order:    ORDER "{{" sort ("," sort)* "}}"
sort:     _expr (ASC | DESC)?

entries: "{{" (field ("," field)* ","?)? "}}"
fields:  "{{" field (","? field)* ","? "}}"
field:   FIELD ":" _value
_value:  literal | VAR | call

write:      _statement+
_statement: insert | update | delete
insert:     INSERT word fields
update:     UPDATE word SET fields WHERE _tests
delete:     DELETE word WHERE _tests

_tests: disjunction{{_test, _test}}
_test:  inverse{{_tests}} | "(" _tests ")" | test
test:   word _judgement{{_value}}

// A clause cannot start with a bare name, or the words of the next clause would be taken for one.
_condition: disjunction{{_clause_operand, _operand}}
_expr:      disjunction{{_operand, _operand}}

?disjunction{{first, rest}}: conjunction{{first, rest}} (OR conjunction{{rest, rest}})*
?conjunction{{first, rest}}: first (AND rest)*
inverse{{inner}}:           NOT_CALL "(" inner ")"
_judgement{{value}}:        (COMPARE | TEXT | IN) value | IS NOT? NULL

_clause_operand: inverse{{_expr}} | comparison{{_opening}}
_operand:        inverse{{_expr}} | comparison{{_factor}}
_bare_operand:   inverse{{_expr}} | comparison{{_bare}}
?comparison{{first}}: sum{{first}} _judgement{{sum{{_factor}}}}?
?sum{{first}}:        product{{first}} ((PLUS | MINUS) product{{_factor}})*
?product{{first}}:    first ((TIMES | OVER) _factor)*

_opening: access | VAR | literal | call | shortest | group
_factor:  _opening | alias
_bare:    access | VAR | plain | call | shortest | group | alias
group:    "(" _expr ")"
access:   VAR "." (word | AT word)
alias:    NAME
call:     CALL "(" (_expr ("," _expr)*)? ")"
shortest: SHORTEST "(" traversal ")"

literal: _plain | list
plain:   _plain -> literal
_plain:  STRING | number | TRUE | FALSE | NULL
number:  MINUS? NUMBER
list:    "[" (_item ("," _item)*)? "]"
_item:   literal | call
word:    NAME | TYPE_NAME

QUERY.3:    /query{WORD_END}/
MATCH.3:    /match{WORD_END}/
RETURN.3:   /return{WORD_END}/
DISTINCT.3: /distinct{WORD_END}/
ORDER.3:    /order{WORD_END}/
LIMIT.3:    /limit{WORD_END}/
OFFSET.3:   /offset{WORD_END}/
INSERT.3:   /insert{WORD_END}/
UPDATE.3:   /update{WORD_END}/
DELETE.3:   /delete{WORD_END}/
SET.3:      /set{WORD_END}/
WHERE.3:    /where{WORD_END}/
AS.3:       /as{WORD_END}/
ASC.3:      /asc{WORD_END}/
DESC.3:     /desc{WORD_END}/
NOT.3:      /not{WORD_END}/
NULL.3:     /null{WORD_END}/
TRUE.3:     /true{WORD_END}/
FALSE.3:    /false{WORD_END}/
// With a bracket of hop bounds behind it, the word is an edge.
TEXT.3:     /(?:contains|starts_with){WORD_END}(?!{_SKIP}\{{)/
AND.3:      /and{WORD_END}(?!{_SKIP}\{{)/
OR.3:       /or{WORD_END}(?!{_SKIP}\{{)/
IN.3:       /in{WORD_END}(?!{_SKIP}\{{)/
IS.3:       /is{WORD_END}(?={_SKIP}(?:not{WORD_END}{_SKIP})?null{WORD_END})/

NOT_BLOCK.4:      /not{_BLOCK}/
EXISTS.4:         /exists{_BLOCK}/
COUNT_BLOCK.4:    /count{_BLOCK}/
OPTIONAL_BLOCK.4: /optional{_BLOCK}/
NOT_CALL.4:       /not(?={_SKIP}\()/
SHORTEST.4:       /shortest(?={_SKIP}\()/
CALL.2:           /[a-z_][A-Za-z0-9_]*(?={_SKIP}\()/

FIELD.5:      /[A-Za-z_][A-Za-z0-9_]*(?={_SKIP}:)/
UNDIRECTED.2: /<{_SKIP}[a-z_][A-Za-z0-9_]*{_SKIP}>/
COMPARE:      /!=|<=|>=|=|<|>/
PLUS:         "+"
MINUS:        "-"
TIMES:        "*"
OVER:         /\/(?![*\/])/
AT:           "@"
VAR:          /\$[A-Za-z_][A-Za-z0-9_]*/
NUMBER:       /[0-9]+(?:\.[0-9]+)?{WORD_END}/

{SHARED_TERMINALS}
"""

TABLES = Path(__file__).with_name("tables.json")  # made from the grammar by scripts/parse_tables.py

# What a reader would call a terminal, in the order in which expectations are listed.
DISPLAY = {
    "QUERY": "'query'",
    "MATCH": "'match'",
    "INSERT": "'insert'",
    "UPDATE": "'update'",
    "DELETE": "'delete'",
    "RETURN": "'return'",
    "DISTINCT": "'distinct'",
    "ORDER": "'order'",
    "LIMIT": "'limit'",
    "OFFSET": "'offset'",
    "SET": "'set'",
    "WHERE": "'where'",
    "VAR": "a variable",
    "NAME": "a name",
    "FIELD": "a name",
    "TYPE_NAME": "a type name",
    "STRING": "a string",
    "NUMBER": "a number",
    "NULL": "'null'",
    "TRUE": "a boolean",
    "CALL": "a function",
    "NOT_BLOCK": "'not {'",
    "EXISTS": "'exists {'",
    "COUNT_BLOCK": "'count {'",
    "OPTIONAL_BLOCK": "'optional {'",
    "NOT_CALL": "'not ('",
    "AND": "'and'",
    "OR": "'or'",
    "AS": "'as'",
    "ASC": "'asc'",
    "DESC": "'desc'",
    "UNDIRECTED": "'<edge>'",
    "COMPARE": "a comparison",
    "TEXT": "'contains'",
    "IN": "'in'",
    "IS": "'is null'",
    "COLON": "':'",
    "DOT": "'.'",
    "COMMA": "','",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "AT": "'@'",
    "OPTIONAL": "'?'",
    "$END": "the end of the query",
}


@cache
def parser() -> Parser:
    """Return the parser; it reads its tables when the first text comes."""
    return Parser.from_file(TABLES)
