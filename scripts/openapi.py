"""Write docs/openapi.json anew: the document of a server that has tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omnigraph.surfaces.server.access import AccessRules
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.identity import AccessMode, StartState
from omnigraph.surfaces.server.settings import ServerSettings

TARGET = Path(__file__).parents[1] / "docs" / "openapi.json"


def document() -> dict[str, Any]:
    """Return the document."""
    return create_app(ServerSettings(), {}, access=AccessRules(StartState(AccessMode.POLICY))).openapi()


def text() -> str:
    """Return it as the file has it."""
    return json.dumps(document(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    print(f"wrote {TARGET}")
