"""Reading: rows, answers, changes and differences of a graph as DataFrames, and exports by executors."""
