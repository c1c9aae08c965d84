"""Functions: what each function and operator of the query language does to whole columns.

A kernel takes Arrow arrays and scalars, never a row at a time, and gives an array: of one row where all it is
given are scalars. The table of catalog/query/functions.py says what it may be given and of what type the
result is; here is what it does.

columns.py    shapes shared by all: columns beside scalars, failures with their row
logic.py      comparisons, three-valued logic
numbers.py    arithmetic and functions of numbers
text.py       functions of texts
time.py       functions of dates and times, durations
lists.py      functions of lists, membership
choice.py     coalesce, if, case and the like, casts

`apply(name, arguments, type)` calls a function of the table, `operate(operator, arguments, type)` an operator;
`type` is the Arrow type of the result. What the language computes only where it is chosen is put together by
`merge(choice, branches, type)`: the number of a branch for each row (-1 is NULL), and of each branch the values
of its own rows. `any_item(lists, truths)` and `all_items(lists, truths)` fold what was asked of the items that
`items_of(lists)` gives; `shift(times, period, sign)` adds a duration.
"""
