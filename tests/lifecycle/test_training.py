"""How a rank of a training job ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.lifecycle.rig import LIFECYCLE

# As Gloo's process group: its destructor waits for what never comes.
STUCK = """
import sys, time
sys.path.insert(0, sys.argv[1])
from nanogpt import end, run

class Stuck:
    def __del__(self):
        time.sleep(600)

def main():
    stuck = Stuck()
    print("trained")
    {ending}

run(main)
"""


@pytest.mark.parametrize(("ending", "code"), [("end(0)", 0), ("raise ValueError('lost a peer')", 1)])
def test_a_rank_ends_at_once_whatever_its_destructors_wait_for(ending: str, code: int) -> None:
    script = STUCK.format(ending=ending)
    done = subprocess.run(
        [sys.executable, "-c", script, str(LIFECYCLE / "training")], capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, done.stdout) == (code, "trained\n")
    assert ("ValueError: lost a peer" in done.stderr) == bool(code)
