"""The rehearsal's network behaves like a VPC's."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rehearsal.nodes.network import Network
from rehearsal.nodes.sandbox import Sandbox

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("clean")]


def test_the_router_keeps_its_hardware_address_when_a_host_loses_power() -> None:
    with Sandbox() as sandbox:
        network = Network(sandbox, "10.1.0.0/24", "us-west-2")
        network.build()
        seen = {_hardware_address(sandbox)}
        for _ in range(4):
            with _host(sandbox) as pid:
                network.connect(pid, network.next_address())
                seen.add(_hardware_address(sandbox))
        seen.add(_hardware_address(sandbox))
    assert len(seen) == 1


def _hardware_address(sandbox: Sandbox) -> str:
    command = ["nsenter", "-t", str(sandbox.pid), "-n", "ip", "-o", "link", "show", "vpc"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("link/ether ")[1].split()[0]


@contextmanager
def _host(sandbox: Sandbox) -> Iterator[int]:
    """The first process of a network namespace."""
    command = ["nsenter", "-t", str(sandbox.pid), "-n", "unshare", "-n", "sh", "-c", "echo $$ && exec sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=sandbox.environment) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()
