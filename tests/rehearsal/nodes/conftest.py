"""A deployed stack for these tests' hosts, and a reason to skip if the machine cannot run hosts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from components.config import parse
from operations.project.loading import load_project
from rehearsal.account import Account
from rehearsal.nodes import audit, requirements
from rehearsal.nodes.stack import Stack, bring_up

ROOT = Path(__file__).parents[3]


@contextmanager
def deployed(name: str, *overrides: str) -> Iterator[Stack]:
    """A stack, deployed in a separate account."""
    project = load_project(ROOT, name, overrides)
    config = parse(project.config)
    with Account(config.region.name) as account:
        yield bring_up(project, config, account, eks=True)


@pytest.fixture(autouse=True)
def able(request: pytest.FixtureRequest) -> None:
    """Skip root tests with what the machine lacks."""
    if request.node.get_closest_marker("root"):
        skip_where_unable()


def skip_where_unable() -> None:
    """Skip in fixtures that boot hosts before the check for their test runs."""
    if lacking := requirements.missing():
        pytest.skip("; ".join(lacking))


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """The dev stack."""
    with deployed("dev") as found:
        yield found


@pytest.fixture
def clean() -> Iterator[None]:
    """The test leaves nothing on the machine."""
    before = audit.look()
    yield
    assert audit.leftovers(before, "none", audit.Namespaces()) == []
