"""A job's wait for the queue after a failure: with all nodes there it ends, for a silent one Slurm requeues it."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sockets import silent_port

ROOT = Path(__file__).parents[2]


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is silent at 127.0.0.1, and that nobody listens at elsewhere."""
    with silent_port() as number:
        yield number


def wait_for_requeue(
    tmp_path: Path, port: int, *nodes: str, seconds: int, grace: int = 1, by: str = "sinfo -h -N -n n[1-2] -o %o"
) -> tuple[str, int]:
    """What the wait says, and how many seconds it takes. Time passes while it sleeps, and only then.

    ``by``: the question that is answered with the nodes; a node has a line for each of its partitions.
    """
    listed = "\\n".join([*nodes, *nodes])
    for command in ("sinfo", "scontrol"):
        text = f"#!/bin/sh\n[ \"${{0##*/}} $*\" = '{by}' ] && printf '{listed}\\n'\n"
        (tmp_path / command).write_text(text)
        (tmp_path / command).chmod(0o755)
    clock, slept = tmp_path / "clock.sh", tmp_path / "slept"
    clock.write_text(f"unset SECONDS\nSECONDS=0\nsleep() {{ SECONDS=$((SECONDS + $1)); echo $SECONDS > {slept}; }}\n")
    done = subprocess.run(
        ["bash", str(ROOT / "lifecycle/training/wait_for_requeue.sh")],
        env={
            "BASH_ENV": str(clock),
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURM_JOB_NODELIST": "n[1-2]",
            "HYPERPOD_WAIT_SECONDS": str(seconds),
            "HYPERPOD_WAIT_GRACE": str(grace),
            "HYPERPOD_WAIT_PORT": str(port),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, int(slept.read_text())


def test_a_failure_with_all_nodes_there_ends_the_job_after_a_while(tmp_path: Path, port: int) -> None:
    assert wait_for_requeue(tmp_path, port, "127.0.0.2", "127.0.0.3", seconds=60, grace=5) == ("", 5)


def test_a_node_that_answers_while_it_shuts_down_is_waited_for(tmp_path: Path, port: int) -> None:
    """Its ranks are gone some seconds before its network is."""
    asked = tmp_path / "asked"
    (tmp_path / "timeout").write_text(f"#!/bin/sh\necho >> {asked}\n[ $(wc -l < {asked}) -le 2 ] || exit 124\n")
    (tmp_path / "timeout").chmod(0o755)
    silent = "127.0.0.2 does not answer; waiting for this job to go back into the queue\n"
    assert wait_for_requeue(tmp_path, port, "127.0.0.2", seconds=7, grace=4) == (silent, 7)


@pytest.mark.slow
def test_a_failure_with_a_silent_node_waits_for_the_queue_and_no_longer_than_its_limit(
    tmp_path: Path, port: int
) -> None:
    silent = "127.0.0.1 does not answer; waiting for this job to go back into the queue\n"
    assert wait_for_requeue(tmp_path, port, "127.0.0.2", "127.0.0.1", seconds=2) == (silent, 2)


@pytest.mark.parametrize("by", ["sinfo -h -N -n n[1-2] -o %o", "scontrol show hostnames n[1-2]"])
def test_a_node_that_the_kernel_no_longer_finds_is_silent_too_also_by_name(by: str, tmp_path: Path, port: int) -> None:
    """After some tries a host that is gone is "No route to host" at once, where others refuse."""
    (tmp_path / "timeout").write_text("#!/bin/sh\necho 'bash: connect: No route to host' >&2\nexit 1\n")
    (tmp_path / "timeout").chmod(0o755)
    silent = "127.0.0.2 does not answer; waiting for this job to go back into the queue\n"
    assert wait_for_requeue(tmp_path, port, "127.0.0.2", seconds=2, by=by) == (silent, 2)
