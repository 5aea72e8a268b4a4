"""Instance metadata is root's and AWS's agents': a unit keeps the others out, at boot and after."""

import re
from collections.abc import Sequence

import pytest
from hyperpod_node.health import checks, system
from hyperpod_node.health.model import Finding, Subject
from hyperpod_node.host import units
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Result
from hyperpod_node.network import metadata_guard

from tests.lifecycle.health.rig import subject, well
from tests.lifecycle.rig import FakeHost, World

UNIT = f"{units.UNITS}/{metadata_guard.UNIT}"


@pytest.fixture
def host(world: World) -> FakeHost:
    return world.node("worker")


def kept_out(text: str) -> list[str]:
    return re.findall(r"^ExecStart=-/bin/sh -c '(.*)'$", text, re.MULTILINE)


def test_everybody_but_root_is_kept_from_both_addresses(host: FakeHost) -> None:
    assert metadata_guard.run(host.node()) == "only root"
    assert kept_out(host.text(UNIT)) == [
        "ip -4 rule add priority 1 protocol kernel to 169.254.169.254 uidrange 1-4294967294 prohibit",
        "ip -6 rule add priority 1 protocol kernel to fd00:ec2::254 uidrange 1-4294967294 prohibit",
    ]
    assert metadata_guard.UNIT in host.active & host.enabled


def test_the_agent_of_cloudwatch_is_let_through_and_nobody_beside_it(host: FakeHost) -> None:
    host.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\ncwagent:x:998:998::/:/bin/false\nmallory:x:2001:2001::/:/\n")
    assert metadata_guard.run(host.node()) == "only root and cwagent"
    found = [command.split("uidrange ")[1] for command in kept_out(host.text(UNIT))]
    assert found == ["1-997 prohibit", "999-4294967294 prohibit"] * 2


@pytest.mark.parametrize(
    ("allowed", "others"),
    [([], [(1, 4294967294)]), ([1], [(2, 4294967294)]), ([7, 5], [(1, 4), (6, 6), (8, 4294967294)]), ([0], None)],
)
def test_ranges_have_everybody_but_root_and_those(allowed: list[int], others: list[tuple[int, int]] | None) -> None:
    assert list(metadata_guard.ranges(allowed)) == (others or [(1, 4294967294)])


def test_the_unit_comes_before_whatever_else_runs_after_a_reboot(host: FakeHost) -> None:
    metadata_guard.run(host.node())
    text = host.text(UNIT)
    assert "DefaultDependencies=no\nBefore=sysinit.target network-pre.target" in text
    assert text.endswith("WantedBy=sysinit.target\n")


@pytest.mark.parametrize("family", ["-4", "-6"])
def test_a_node_whose_users_still_get_through_does_not_come_up(host: FakeHost, family: str) -> None:
    host.commands["ip"] = lambda h, args, stdin: Result(0 if args[1] == family else 2)
    with pytest.raises(StepError, match="every user reaches"):
        metadata_guard.run(host.node())


def test_a_second_run_changes_nothing(host: FakeHost) -> None:
    metadata_guard.run(host.node())
    before, calls = host.tree(), len(host.calls)
    metadata_guard.run(host.node())
    assert host.tree() == before
    assert not any("restart" in call for call in host.calls[calls:])


# The health check


@pytest.mark.parametrize("family", ["-4", "-6"])
def test_a_node_whose_role_every_user_gets_is_bad(host: FakeHost, family: str) -> None:
    well(host)
    host.commands["ip"] = lambda _, args, __: Result(0 if args[1] == family else 2)
    address = {"-4": "169.254.169.254", "-6": "fd00:ec2::254"}[family]
    why = f"every user reaches {address}, and gets the role of this node: `systemctl status hyperpod-metadata.service`"
    found = {one.check: one.finding for one in checks.run(subject(host))}
    assert found["metadata"] == Finding("bad", why)


def test_a_node_whose_role_pods_get_is_bad(host: FakeHost) -> None:
    told: list[Sequence[str]] = []

    def ip(_: FakeHost, args: Sequence[str], __: str | None) -> Result:
        told.append(args)
        return Result(0, "3:\tfrom all to 169.254.169.254 prohibit proto kernel\n" if len(told) == 1 else "")

    host.commands["ip"] = ip
    on_eks = Subject(host, host.node().identity.group)
    assert system.role(on_eks) == Finding("ok")
    assert system.role(on_eks).detail.startswith("pods reach 169.254.169.254, and get the role of this node")
    assert list(told[0]) == ["ip", "-4", "rule", "show", "priority", "3"]
