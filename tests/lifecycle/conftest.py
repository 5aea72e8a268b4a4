"""The node's own package is not installed: it is shipped as files, and imported from where they are."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "lifecycle"))

from hyperpod_node.facts.model import Node

from tests.lifecycle import words
from tests.lifecycle.accounting.rig import Database
from tests.lifecycle.rig import FakeHost, World


@pytest.fixture(autouse=True)
def _known_words() -> Iterator[None]:
    """Whatever a thread of the scripts has said, in whichever world."""
    words.STRANGE.clear()
    yield
    assert not words.STRANGE, words.STRANGE


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    """With the SETTINGS of the test's module, where it has some."""
    return World(tmp_path, settings=getattr(request.module, "SETTINGS", {}))


@pytest.fixture
def tables() -> Database:
    return Database()


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
