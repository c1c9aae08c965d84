"""Plan: a checked read as steps in an order, and the rules that make it cheaper."""
