"""The locked requirements: a line for each package, with the hashes of its files."""

from __future__ import annotations

import re
from pathlib import Path


def entries(path: Path) -> list[str]:
    """The requirements of a locked file and of those that it names with ``-r``, each with its hashes."""
    text = path.read_text()
    named = re.findall(r"^-r (.+)$", text, re.MULTILINE)
    own = re.findall(r"^[\w.-]+==.*\n", text, re.MULTILINE)
    return [*(entry for name in named for entry in entries(path.parent / name)), *own]
