"""Leaves in a locked file only what the files that it names have not: ``python -m tools.supply.locks FILE OTHER ...``.

``uv pip compile`` writes every package that a requirement leads to, so each file would repeat the program's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

# A requirement with its hashes, one to a line.
_ENTRY = re.compile(r"^[\w.-]+==.*\\\n(?:    --hash=.*\n)+", re.MULTILINE)


def entries(path: Path) -> list[str]:
    """The requirements of a locked file and of those that it names with ``-r``, each with its hashes."""
    text = path.read_text()
    named = re.findall(r"^-r (.+)$", text, re.MULTILINE)
    return [*(entry for name in named for entry in entries(path.parent / name)), *_ENTRY.findall(text)]


def main(words: Sequence[str]) -> None:
    """Rewrite the first file so that it names the others, and has no entry of theirs."""
    path, *others = map(Path, words)
    taken = {entry for other in others for entry in entries(other)}
    head = "".join(f"-r {other.name}\n" for other in others)
    path.write_text(
        _ENTRY.sub(lambda found: "" if found[0] in taken else found[0], path.read_text()).replace(
            "#    make requirements\n", f"#    make requirements\n{head}", 1
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
