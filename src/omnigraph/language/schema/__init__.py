"""Schema language: `.pg` text to a checked tree, and back to text."""

from omnigraph.language.schema.check import CheckedSchema, examine, load
from omnigraph.language.schema.parser import Parse, parse
from omnigraph.language.schema.printer import print_schema
from omnigraph.language.schema.tree import Schema

__all__ = ["CheckedSchema", "Parse", "Schema", "examine", "load", "parse", "print_schema"]
