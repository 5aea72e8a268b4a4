"""How a rank of a training job ends, and which device it takes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import ModuleType, SimpleNamespace

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


@pytest.fixture(scope="module")
def nanogpt() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nanogpt", LIFECYCLE / "training/nanogpt.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("seen", "device"),
    [(8, "cuda:3"), (1, "cuda:0"), (0, "cpu")],
    ids=["all of a node's", "its own alone, by --gpus-per-task", "none"],
)
def test_the_fourth_rank_of_a_node_takes_a_gpu_that_it_sees(nanogpt: ModuleType, seen: int, device: str) -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: seen > 0, device_count=lambda: seen))
    assert nanogpt._device(torch, 3) == device
