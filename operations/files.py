"""Files that verbs write: whole, or not at all."""

from contextlib import suppress
from pathlib import Path

from .failures import Failure


def write(path: Path, text: str) -> None:
    """Write a file. Where that fails it is not left half written, unless it was there before. Raises Failure."""
    there = path.exists()
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        if not there:
            with suppress(OSError):
                path.unlink()
        raise Failure(f"{path}: {error.strerror}", name="file") from error
