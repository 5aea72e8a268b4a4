"""What changes to a deployed stack create, update, replace, delete, cost and take is what is written down."""

import pytest

from tests.golden import files
from tests.golden.changes import CHANGES, STORIES, tell


@pytest.mark.slow
@pytest.mark.parametrize("stack", STORIES)
def test_every_change_comes_to_what_is_written_down(stack: str) -> None:
    difference = files.told({stack: files.read(CHANGES)[stack]}, {stack: tell(stack)})
    assert not difference, f"tests/golden/changes/{stack}:\n{difference}"


def test_no_golden_story_is_left_over() -> None:
    assert sorted(path.stem for path in CHANGES.iterdir()) == sorted(STORIES)
