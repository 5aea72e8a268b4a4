"""The folder of the user's own health checks, ``hyperpod:healthChecks``: its files, and their problems.

The folder is on the machine that deploys, so only a deployment reads it; a node gets the files with the lifecycle
scripts.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ..schema.folders import OF_UNIX, check_file_count, check_folder_exists, has_windows_line_ends, visible
from ..schema.problems import Problem

KEY = "hyperpod:healthChecks"
# All of them run at once on every node, every few minutes, and each download of a node has them.
MOST_FILES, MOST_BYTES = 16, 1 << 20
# A name becomes a label of a metric and a part of the reason that Slurm shows.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


def files(folder: str | None) -> list[Path]:
    """Return the checks, in a stable order."""
    return visible(Path(folder)) if folder else []


def problems(folder: object) -> list[Problem]:
    """Yield every problem of the folder, if the key names one."""
    return list(_problems(Path(folder))) if folder and isinstance(folder, str) else []


def _problems(folder: Path) -> Iterator[Problem]:
    if not folder.is_dir():
        yield from check_folder_exists(KEY, folder, "a folder of executables, relative to the project's folder")
        return
    paths = visible(folder)
    for path in paths:
        if not path.is_file():
            yield Problem(key=KEY, what=f"{path} is not a file", fix="the folder has the executables themselves")
        elif not os.access(path, os.X_OK):
            yield Problem(key=KEY, what=f"{path} is not executable", fix=f"chmod +x {path}, or move it elsewhere")
        elif has_windows_line_ends(path):
            yield Problem(key=KEY, what=f"{path} has Windows line endings", fix=OF_UNIX.format(path=path))
        if not _NAME.fullmatch(path.name):
            fix = "at most 40 letters, digits, dots, hyphens and underscores"
            yield Problem(key=KEY, what=f"{path.name!r} cannot name a check", fix=fix)
    size = sum(path.stat().st_size for path in paths if path.is_file())
    yield from check_file_count(KEY, folder, len(paths), MOST_FILES, "check")
    if size > MOST_BYTES:
        yield Problem(key=KEY, what=f"{folder} has {size} bytes", fix=f"at most {MOST_BYTES}")
