"""Page: the OpenAPI document for people, as one page that loads nothing from anywhere."""

from __future__ import annotations

from html import escape
from typing import Any

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "code{white-space:nowrap}td,th{text-align:left;vertical-align:top;padding:.2rem 1rem .2rem 0}"
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page_of(document: dict[str, Any]) -> str:
    """Return a page that lists the routes of a document by their tags."""
    info = document["info"]
    sections = "".join(_section(tag, rows) for tag, rows in _by_tag(document).items())
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>"
        f"<style>{STYLE}</style><h1>{escape(info['title'])}</h1><p>{escape(info['description'])} "
        f"The bodies are in <a href=openapi.json>openapi.json</a>.</p>{sections}</html>"
    )


def _by_tag(document: dict[str, Any]) -> dict[str, list[str]]:
    tagged: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            row = (
                f"<tr><td><code>{method.upper()} {escape(path)}</code></td>"
                f"<td>{escape(operation['description'])}</td></tr>"
            )
            tagged.setdefault(operation["tags"][0], []).append(row)
    return tagged


def _section(tag: str, rows: list[str]) -> str:
    return f"<h2>{escape(tag.capitalize())}</h2><table>{''.join(rows)}</table>"
