"""Bulk: loads whose rows are read, checked and written by Spark's executors."""
