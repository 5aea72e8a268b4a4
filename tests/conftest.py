"""What holds for every test."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """What the tests import stays: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
