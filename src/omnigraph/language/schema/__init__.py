"""Schema language: `.pg` text to a checked tree, and back to text."""

from omnigraph.language.schema.check import CheckedSchema, examine, load
from omnigraph.language.schema.parser import ParsedSchema, parse
from omnigraph.language.schema.printer import print_schema
from omnigraph.language.schema.tree import SchemaSyntax

__all__ = ["CheckedSchema", "ParsedSchema", "SchemaSyntax", "examine", "load", "parse", "print_schema"]
