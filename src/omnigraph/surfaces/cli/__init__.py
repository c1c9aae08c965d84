"""Command line: one file per command group; `app.main` is the entry point."""
