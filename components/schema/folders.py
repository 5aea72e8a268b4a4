"""Folders of files that a key names on the machine that deploys, and their possible problems."""

from collections.abc import Iterator
from pathlib import Path

from .problems import Problem

# The command that gives a file the line ends of the nodes.
OF_UNIX = "sed -i 's/\\r$//' {path}"


def visible(folder: Path) -> list[Path]:
    """Return the folder's files, in a stable order."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def check_folder_exists(key: str, folder: Path, fix: str) -> Iterator[Problem]:
    """Yield a problem if the folder is missing."""
    if not folder.is_dir():
        yield Problem(key=key, what=f"{folder} {'is a file' if folder.exists() else 'does not exist'}", fix=fix)


def check_file_count(key: str, folder: Path, count: int, most: int, thing: str) -> Iterator[Problem]:
    """Yield a problem if it has no file, or more than that many. ``thing``: the kind of its files."""
    if not count:
        yield Problem(key=key, what=f"{folder} is empty", fix=f"put a {thing} in it, or leave the key out")
    if count > most:
        yield Problem(key=key, what=f"{folder} has {count} files", fix=f"at most {most}")


def has_windows_line_ends(path: Path) -> bool:
    """Whether it is a script whose first line ends as on Windows: no node finds an interpreter of that name."""
    first, _, _ = path.read_bytes().partition(b"\n")
    return first.startswith(b"#!") and first.endswith(b"\r")
