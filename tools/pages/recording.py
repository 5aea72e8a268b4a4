"""Renews docs/pictures/rehearse.svg: a real `hyperpod rehearse` in a terminal, ``python -m tools.pages.recording``.

Needs asciinema (`pip install asciinema==2.4.0`) and svg-term (`npm install -g svg-term-cli@2.1.1`) on PATH.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "pictures" / "rehearse.svg"
COMMAND = "hyperpod rehearse dev"
COLUMNS, ROWS = 100, 76
# The longest pause that is shown, and how long the last picture stays, seconds.
PAUSE, END = 0.12, 10.0


def paced(lines: Sequence[str]) -> Iterator[str]:
    """A recording without long pauses, whose end stays (asciinema's file format, version 2: times, kinds, texts)."""
    yield lines[0]
    shown = before = 0.0
    for line in lines[1:]:
        at, kind, text = json.loads(line)
        shown, before = shown + min(at - before, PAUSE), at
        yield json.dumps([round(shown, 3), kind, text])
    yield json.dumps([round(shown + END, 3), "o", "\x1b[?25l"])


def main() -> None:
    """Record, pace and draw. Raises SystemExit where a program is missing."""
    if missing := [program for program in ("asciinema", "svg-term") if shutil.which(program) is None]:
        raise SystemExit(
            f"not on PATH: {', '.join(missing)} (`pip install asciinema==2.4.0`, `npm install -g svg-term-cli@2.1.1`)"
        )
    with TemporaryDirectory() as folder:
        cast = Path(folder) / "rehearse.cast"
        size = ["--cols", str(COLUMNS), "--rows", str(ROWS)]
        subprocess.run(["asciinema", "rec", "--quiet", *size, "--command", COMMAND, str(cast)], cwd=ROOT, check=True)
        cast.write_text("\n".join(paced(cast.read_text().splitlines())) + "\n")
        drawn = ["svg-term", "--in", str(cast), "--out", str(PICTURE), "--window", "--no-cursor"]
        subprocess.run(drawn, check=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes; look at it before you commit it")


if __name__ == "__main__":
    main()
