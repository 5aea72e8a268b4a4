"""How the pods of an elastic job meet, whichever is lost: the shell that they run, with a torchrun that listens."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operations.jobs.choices import Choices
from operations.jobs.render import render
from tests.support import config

# Keeps the rendezvous where its endpoint is this pod's own address, as torchrun's c10d backend does.
_TORCHRUN = """#!/usr/bin/env python3
import os, signal, socket, sys
endpoint = next(word for word in sys.argv if word.startswith("--rdzv-endpoint=")).partition("=")[2]
host, _, port = endpoint.partition(":")
if host == os.environ["POD_IP"]:
    store = socket.create_server((host, int(port)))
print("joins", host, flush=True)
signal.pause()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Starts a worker, or without a rank a further pod; seconds pass as thousandths."""
    (tmp_path / "torchrun").write_text(_TORCHRUN)
    (tmp_path / "sleep").write_text('#!/bin/sh\nexec /bin/sleep "$(echo "$1" | sed s/^/0.0/)"\n')
    for program in tmp_path.iterdir():
        program.chmod(0o755)
    # An address on the loopback interface for each worker, of this test's own.
    net = f"127.{os.getpid() // 250 % 250}.{os.getpid() % 250}"
    job = render("nanogpt", config("eks-gpu", size="large"), Choices(nodes=4, min_nodes=3))[-1]
    command = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"]
    # These have no names.
    command[-1] = re.sub(r"nanogpt-worker-(\$RANK|\d)", lambda match: f"{net}.1{match[1]}", command[-1])
    started: list[subprocess.Popen[str]] = []

    def begin(rank: int | None) -> subprocess.Popen[str]:
        own = {"RANK": "" if rank is None else str(rank), "POD_IP": f"{net}.1{rank}"}
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **own}
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, process_group=0))
        return started[-1]

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def place(process: subprocess.Popen[str]) -> str:
    """The last part of the address that a pod joins, which is 1 and the worker's rank."""
    assert process.stdout
    return process.stdout.readline().strip().rpartition(".")[2]


def test_the_first_worker_keeps_the_rendezvous_and_all_others_join_it(start: Any) -> None:
    assert [place(start(rank)) for rank in (0, 2, 1, None)] == ["10"] * 4


def test_a_later_worker_keeps_it_where_the_first_is_lost_and_the_first_joins_that_one(start: Any) -> None:
    later, further = start(2), start(None)
    assert (place(later), place(further)) == ("12", "12")
    assert place(start(0)) == "12"
    os.killpg(later.pid, signal.SIGKILL)
    later.wait()
    assert place(start(1)) == "11"


def test_torchrun_is_not_told_that_its_pod_ends_and_so_closes_nothing(start: Any) -> None:
    first = start(0)
    assert place(first) == "10"
    first.terminate()
    assert place(start(1)) == "10"


@pytest.mark.slow
def test_a_further_pod_gives_its_node_back_where_no_worker_runs(start: Any) -> None:
    began, further = time.monotonic(), start(None)
    said, _ = further.communicate(timeout=60)
    assert (further.returncode, said) == (1, "no worker keeps the rendezvous\n")
    assert time.monotonic() - began > 0.6
