"""The node's own package is not installed: it is shipped as files, and imported from where they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "lifecycle"))

from hyperpod_node.model import Node

from tests.lifecycle.rig import FakeHost, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    assert not made.strange, made.strange


@pytest.fixture
def host(world: World) -> FakeHost:
    """A worker."""
    return world.node("worker")


@pytest.fixture
def node(host: FakeHost) -> Node:
    """What a boot step gets of the host."""
    found = host.node()
    found.enter("step")
    return found
