"""What the attacks have in common."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifecycle.conftest import host, world
from tests.operations.aws import aws, on, plugin
from tests.operations.conftest import records_apart

__all__ = ["aws", "host", "on", "plugin", "records_apart", "world"]


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A folder that every user of this machine may look into; pytest's own are the user's who runs it."""
    folder = Path(tempfile.mkdtemp(prefix="hyperpod-attack-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
