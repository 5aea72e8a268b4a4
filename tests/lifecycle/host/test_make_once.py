"""What is made once for a whole cluster, on the shared file system, while all nodes start at the same time."""

import stat
import threading
from pathlib import Path

import pytest
from hyperpod_node.facts.model import Node
from hyperpod_node.host import make_once

from tests.lifecycle.rig import World
from tests.lifecycle.slurm_rig import ready


def test_nodes_that_start_together_make_a_thing_once(world: World) -> None:
    nodes = [ready(world.node("worker", address=f"10.1.0.{n}")) for n in (12, 13)] + [ready(world.node("controller"))]
    barrier, made = threading.Barrier(len(nodes)), []

    def start(node: Node, number: int) -> None:
        def fill(folder: Path) -> None:
            (folder / "who").write_text(str(number))
            barrier.wait()

        made.append(make_once.make_once(node.host, f"{node.private}/thing", fill))

    threads = [threading.Thread(target=start, args=(node, n)) for n, node in enumerate(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    private = world.shared / ".hyperpod/private"
    assert sorted(made) == [False, False, True]
    assert [path.name for path in private.iterdir()] == ["thing"]


def test_what_a_killed_node_left_half_made_is_made_anew(world: World) -> None:
    node = ready(world.node("worker"))
    half = world.shared / ".hyperpod/private/.thing.ip-10-1-0-12"
    half.mkdir()
    (half / "half").touch()
    assert make_once.make_once(node.host, f"{node.private}/thing", lambda folder: (folder / "whole").touch())
    (whole,) = (world.shared / ".hyperpod/private/thing").iterdir()
    assert whole.name == "whole"
    assert stat.S_IMODE(whole.parent.stat().st_mode) == 0o700
    assert not make_once.make_once(node.host, f"{node.private}/thing", lambda folder: pytest.fail("it is there"))
