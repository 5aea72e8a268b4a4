"""Every job of the golden EKS stacks is rendered as written down."""

from __future__ import annotations

import pytest

from tests.golden import files
from tests.golden.jobs import JOBS, STACKS, Jobs, rendered
from tests.golden.stacks import GOLDEN


def written(name: str) -> Jobs:
    own, base = files.read(JOBS / name), GOLDEN[name].base
    return files.whole(own, written(base)) if base in STACKS else own


@pytest.mark.parametrize("name", STACKS)
def test_every_job_is_rendered_as_written_down(name: str) -> None:
    difference = files.told(written(name), rendered(name))
    assert not difference, f"tests/golden/jobs/{name}:\n{difference}"
