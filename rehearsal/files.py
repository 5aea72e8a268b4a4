"""Where a rehearsal's results go: the report, and the JSON, which ``-`` sends to standard output."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from operations import files
from operations.failures import bad_input
from operations.terminal.output_options import OPTIONS, text_of

STANDARD_OUTPUT = Path("-")
# A report of the largest ready stack has 0.6 MB, its JSON 0.3 MB.
_ROOM_BYTES = 2_000_000


def console_beside(result: Path | None) -> Console:
    """A console for everything but the JSON: standard error, if that goes to standard output."""
    return Console(stderr=result == STANDARD_OUTPUT)


def progress_beside(result: Path | None) -> Console:
    """The same for what goes on meanwhile; it shows nothing with -q."""
    return Console(stderr=result == STANDARD_OUTPUT, quiet=OPTIONS.quiet)


def check_files(report: Path | None, result: Path | None) -> None:
    """Refuse a file that cannot be written, before the rehearsal instead of after it. Raises Failure."""
    for option, path in (("--report", report), ("--write", result)):
        if path and path != STANDARD_OUTPUT:
            _check(option, path)


def _check(option: str, path: Path) -> None:
    if not path.parent.is_dir():
        raise bad_input(f"{option} {path}: there is no folder {path.parent}", f"mkdir -p {path.parent}")
    if path.exists() and not path.is_file():
        # A device or a pipe: what opening it does is its own affair.
        return
    there = path.exists()
    try:
        path.open("ab").close()
        if not there:
            path.unlink()
    except OSError as error:
        raise bad_input(f"{option} {path}: {error.strerror}", "a file in a folder that you may write to") from error
    disk = os.statvfs(path.parent)
    if (free := disk.f_bavail * disk.f_frsize) < _ROOM_BYTES:
        raise bad_input(f"{option} {path}: its disk has only {free:,} bytes left", "another folder, or free some space")


def write(found: Mapping[str, Any], result: Path | None) -> None:
    """Print the result, or write it where ``--write`` says."""
    if result == STANDARD_OUTPUT:
        print(text_of(found))
    elif result:
        files.write(result, json.dumps(found, indent=2) + "\n")
