"""Where a rehearsal's results go: the report, and the JSON, which ``-`` sends to standard output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from stack.failures import bad_input

STANDARD_OUTPUT = Path("-")


def console_beside(result: Path | None) -> Console:
    """A console for everything but the JSON: standard error, if that goes to standard output."""
    return Console(stderr=result == STANDARD_OUTPUT)


def check_folders(report: Path | None, result: Path | None) -> None:
    """Refuse a file in a folder that does not exist, before the rehearsal instead of after it. Raises Failure."""
    for option, path in (("--report", report), ("--json", result)):
        if path and not path.parent.is_dir():
            raise bad_input(f"{option} {path}: there is no folder {path.parent}", f"mkdir -p {path.parent}")


def write(found: Mapping[str, Any], result: Path | None) -> None:
    """Write the JSON where ``--json`` says."""
    text = json.dumps(found, indent=2)
    if result == STANDARD_OUTPUT:
        print(text)
    elif result:
        result.write_text(text + "\n")
