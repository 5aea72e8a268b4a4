"""How a rank of a training job ends, and which device it takes."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

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
    # As for a script: its neighbours are found.
    sys.path.append(str(LIFECYCLE / "training"))
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


class Store:
    """PyTorch's: a client that comes before the server sleeps a second, so it is seen whether one listened."""

    listened = False

    def __init__(self, address: str, port: int, *_: object, **__: object) -> None:
        with contextlib.suppress(OSError):
            socket.create_connection((address, port), timeout=1).close()
            self.listened = True
        self.values: dict[str, bytes] = {}

    def set(self, _: str, value: str) -> None:
        self.values = {"wish/0": value.encode(), "wish/1": value.encode()}

    def get(self, key: str) -> bytes:
        return self.values[key]


@pytest.mark.parametrize("rank", [0, 1])
def test_other_ranks_wait_for_the_first_one_s_store_and_then_lose_no_second(
    nanogpt: ModuleType, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    stores: list[Store] = []

    def store(*args: Any, **rest: Any) -> Store:
        stores.append(Store(*args, **rest))
        return stores[0]

    made = SimpleNamespace(
        TCPStore=store,
        init_process_group=lambda *args, **rest: None,
    )
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False), distributed=made)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(server.getsockname()[1]))
        later = threading.Timer(0.2, server.listen)
        later.start()
        assert nanogpt._join(torch, rank, 2) == "gloo"
        later.join()
    assert [store.listened for store in stores] == [rank == 1]


def test_a_checkpoint_without_space_is_said_and_leaves_no_half_of_one(nanogpt: ModuleType, tmp_path: Path) -> None:
    def save(state: object, file: Any) -> None:
        file.write(b"half of it")
        try:
            raise OSError(28, "No space left on device")
        finally:
            # PyTorch's own, from the end of its archive.
            raise RuntimeError("unexpected pos 40384 vs 40272")

    torch = SimpleNamespace(save=save, tensor=lambda rows, dtype: rows, float64=None)
    part = SimpleNamespace(state_dict=lambda: {"state": {}})
    (tmp_path / "checkpoint-00000020.pt").write_text("whole")
    with pytest.raises(RuntimeError, match=r"checkpoint of iter 40 was not saved in .*: \[Errno 28\] No space left"):
        nanogpt._save(torch, tmp_path, part, part, 40, [])
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000020.pt"]
