"""Run a program, with dots meanwhile, and show its output only if it fails: ``python -m tools.step TITLE PROGRAM``."""

from __future__ import annotations

import sys

from .environment import run, step

if __name__ == "__main__":
    title, *words = sys.argv[1:]
    with step(title):
        run(*words)
