"""Logs: what the package says about its work, on stderr, for people or for machines.

Room    surfaces.cli. The package logs to `omnigraph` and below and configures nothing; the command line does.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

LOGGER = "omnigraph"
HANDLER = "omnigraph-cli"


class LogLevel(StrEnum):
    """How much to log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How to log."""

    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(level: LogLevel, form: LogFormat) -> None:
    """Log to stderr as it is now; a second call in one process replaces the first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.set_name(HANDLER)
    handler.setFormatter(
        JsonFormatter()
        if form is LogFormat.JSON
        else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logger = logging.getLogger(LOGGER)
    for old in [one for one in logger.handlers if one.get_name() == HANDLER]:
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(level.value.upper())
