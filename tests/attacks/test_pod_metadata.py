"""What a pod tries against the role of its node: instance metadata, through this machine's own kernel.

Three network namespaces: a node, a pod behind it as the VPC CNI connects it, and what answers at the metadata address.
The node runs the commands of the unit that every node of an EKS cluster has.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from hyperpod_node.network import pod_metadata_guard

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2"),
]
NODE, POD, AWS = (f"hyperpod-{name}-{os.getpid()}" for name in ("node", "pod", "aws"))
METADATA, ELSEWHERE = "169.254.169.254", "10.9.2.1"


def ip(*words: str, inside: str = "") -> None:
    subprocess.run([*(("ip", "netns", "exec", inside) if inside else ()), "ip", *words], check=True, timeout=10)


def reaches(namespace: str, address: str) -> bool:
    """Whether a packet comes back from there."""
    ask = ["ip", "netns", "exec", namespace, "python3", "-c", ASK, address]
    return subprocess.run(ask, capture_output=True, timeout=10).stdout == b"role"


SERVE = (
    "import socket\n"
    "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('0.0.0.0', 80)); print('on', flush=True)\n"
    "while True: s.sendto(b'role', s.recvfrom(9)[1])"
)
ASK = (
    "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)\n"
    "s.sendto(b'?', (sys.argv[1], 80)); print(s.recv(9).decode(), end='')"
)


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    """The pod's only way out is the node, which forwards."""
    for one in (NODE, POD, AWS):
        ip("netns", "add", one)
    try:
        for far, mine, its, name in ((POD, "10.9.1.254", "10.9.1.1", "eni1"), (AWS, "10.9.2.254", "10.9.2.1", "eth0")):
            ip("link", "add", name, "netns", NODE, "type", "veth", "peer", "name", "eth0", "netns", far)
            for where, link, address in ((NODE, name, mine), (far, "eth0", its)):
                ip("address", "add", f"{address}/24", "dev", link, inside=where)
                ip("link", "set", link, "up", inside=where)
                ip("link", "set", "lo", "up", inside=where)
            ip("route", "add", "default", "via", mine, inside=far)
        ip("route", "add", "default", "via", ELSEWHERE, inside=NODE)
        ip("address", "add", f"{METADATA}/32", "dev", "lo", inside=AWS)
        forward = ["ip", "netns", "exec", NODE, "sysctl", "-qw", "net.ipv4.ip_forward=1"]
        subprocess.run(forward, check=True, timeout=10)
        serve = ["ip", "netns", "exec", AWS, "python3", "-c", SERVE]
        with subprocess.Popen(serve, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"on\n"
            try:
                yield
            finally:
                server.terminate()
    finally:
        for one in (NODE, POD, AWS):
            ip("netns", "delete", one)


def start(text: str) -> list[int]:
    """Run a unit's commands on the node, as systemd would; the codes of those that must succeed."""
    codes = []
    for may_fail, command in re.findall(r"^ExecStart=(-?)/bin/sh -c '(.*)'$", text, re.MULTILINE):
        done = subprocess.run(["ip", "netns", "exec", NODE, "sh", "-c", command], capture_output=True, timeout=10)
        codes += [] if may_fail else [done.returncode]
    return codes


def test_a_pod_gets_the_role_of_no_node_and_the_node_keeps_it(network: None) -> None:
    assert reaches(POD, METADATA), "before, any pod gets it"
    text = pod_metadata_guard.text()
    # At the next boot, and when the step runs again.
    for _ in range(2):
        assert start(text) == [0]
        assert not reaches(POD, METADATA)
        assert reaches(NODE, METADATA)
        assert reaches(POD, ELSEWHERE)
    # A pod that sends from the node's own address, or by a route of its own, is forwarded all the same.
    ip("route", "add", METADATA, "via", "10.9.1.254", "dev", "eth0", inside=POD)
    ip("address", "add", f"{ELSEWHERE[:-1]}254/32", "dev", "lo", inside=POD)
    assert not reaches(POD, METADATA)


def test_the_node_keeps_its_role_where_its_own_rule_cannot_be_made(network: None) -> None:
    start(pod_metadata_guard.text())
    for priority in (pod_metadata_guard.OWN, pod_metadata_guard.OTHERS):
        ip("rule", "delete", "priority", str(priority), inside=NODE)
    text = pod_metadata_guard.text().replace(" iif lo ", " no-such-word ")
    assert start(text) == [1]
    assert reaches(NODE, METADATA)
