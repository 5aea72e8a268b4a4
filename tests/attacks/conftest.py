"""What the attacks have in common."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifecycle.conftest import host, world

__all__ = ["host", "world"]


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A folder that every user of this machine may look into; pytest's own are the user's who runs it."""
    folder = Path(tempfile.mkdtemp(prefix="hyperpod-attack-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
