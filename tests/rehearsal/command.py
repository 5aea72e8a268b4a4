"""``hyperpod rehearse`` in this process."""

from collections.abc import Sequence

import hyperpod
from operations import cli

hyperpod.join()


def main(words: Sequence[str]) -> int:
    """Run it with these words. Returns the exit code."""
    return cli.main(["rehearse", *words])
