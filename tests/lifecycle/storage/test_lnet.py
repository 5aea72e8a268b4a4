"""EFA to the file system: LNet has it besides TCP where the node can, and TCP alone where it cannot."""

# ruff: noqa: ARG002 (fakes have the signatures of what they stand for)

from collections.abc import Sequence
from pathlib import Path

import pytest
from hyperpod_node.boot import steps
from hyperpod_node.facts.model import Node
from hyperpod_node.host.errors import Skip
from hyperpod_node.host.host import Result
from hyperpod_node.storage import lnet

from tests.lifecycle.rig import HOME, VPC, FakeHost, World

FSX = {"efa": True, "throughput": 1000, "storageGiB": 4800}
# Of 32 devices, four on each PCI bus, the first of each bus.
CHOSEN = [f"rdmap{number}s27" for number in range(0, 32, 4)]


class Lnet:
    """A kernel's LNet, with lnetctl and modprobe in front of it."""

    def __init__(self, host: FakeHost) -> None:
        self.nets: dict[str, list[str]] = {}
        self.discovery, self.policies = 0, 0
        self.modules = {"kefalnd", "ksocklnd"}
        self.refused: set[str] = set()
        host.commands |= {"modprobe": self._modprobe, "lnetctl": self._lnetctl}
        version = host.path("/sys/module/efa/version")
        version.parent.mkdir(parents=True)
        version.write_text("2.13.0g\n")

    def _modprobe(self, host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        found = args[1] in self.modules
        return Result(0) if found else Result(1, "", f"modprobe: FATAL: Module {args[1]} not found")

    def _lnetctl(self, host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        if args[1:] == ("lnet", "configure"):
            self.nets = {"lo": [], **self.nets}
        elif args[1:] == ("lnet", "unconfigure"):
            self.nets = {}
        elif args[1:3] == ("net", "add"):
            assert (args[3], args[5]) == ("--net", "--if"), args
            assert args[7:] == (("--peer-credits", "32") if args[4] == "efa" else ()), args
            net, device = args[4], args[6]
            if device in self.refused or not self.nets:
                return Result(1, "", f"cannot add {device}")
            self.nets.setdefault(net, []).append(device)
        elif args[1:] == ("net", "show"):
            return Result(0, self._shown()) if self.nets else Result(1, "", "cannot get networks: Network is down")
        elif args[1:] == ("global", "show"):
            return Result(0, f"global:\n    numa_range: 0\n    discovery: {self.discovery}\n    drop_asym_route: 0\n")
        elif args[1:] == ("set", "discovery", "1"):
            self.discovery = 1
        elif args[1:] == ("udsp", "show"):
            return Result(0, "udsp:\n    - idx: 0\n      src: efa\n      dst: NA\n" if self.policies else "")
        elif args[1:] == ("udsp", "add", "--src", "efa", "--priority", "0"):
            self.policies += 1
        else:
            return Result(1, "", f"no such command: {args}")
        return Result(0)

    def _shown(self) -> str:
        lines = ["net:"]
        for net, devices in self.nets.items():
            lines += [f"    - net type: {net}", "      local NI(s):"]
            for device in devices or [""]:
                lines += [f"        - nid: 10.1.0.12@{net}", "          status: up"]
                lines += ["          interfaces:", f"              0: {device}"] if device else []
        return "\n".join(lines) + "\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, settings={"fsx": FSX})


@pytest.fixture
def kernel(host: FakeHost) -> Lnet:
    return Lnet(host)


def warned(node: Node) -> str:
    """Why a run has left the node with TCP, as its one warning says."""
    assert lnet.run(node) == "TCP alone"
    (warning,) = (text for texts in node.warnings.values() for text in texts)
    said, _, why = warning.partition(": ")
    assert said == "the file system is used over TCP, not EFA"
    return why


def changes(host: FakeHost) -> list[tuple[str, ...]]:
    """What was asked of LNet, without questions."""
    return [call for call in host.calls if call[0] == "lnetctl" and call[-1] != "show"]


def test_efa_is_used_in_addition_to_tcp_on_the_interface_of_the_default_route(host: FakeHost, kernel: Lnet) -> None:
    assert lnet.run(host.node()) == "8 EFA interfaces besides TCP on ens6"
    assert kernel.nets == {"lo": [], "tcp": ["ens6"], "efa": CHOSEN}
    assert (kernel.discovery, kernel.policies) == (1, 1)
    assert host.ran("modprobe", "kefalnd", "ipif_name=ens6")
    assert host.ran("lnetctl", "net", "add", "--net", "efa", "--if", CHOSEN[0], "--peer-credits", "32")


def test_a_second_run_changes_nothing(host: FakeHost, kernel: Lnet) -> None:
    lnet.run(host.node())
    before, policies = host.tree(), kernel.policies
    host.calls.clear()
    host.changes.clear()
    assert lnet.run(host.node()) == "8 EFA interfaces besides TCP on ens6"
    assert not changes(host)
    assert not host.changes
    assert (host.tree(), kernel.policies) == (before, policies)


def test_a_run_that_was_killed_half_way_is_completed(host: FakeHost, kernel: Lnet) -> None:
    kernel.nets = {"lo": [], "tcp": ["ens6"], "efa": CHOSEN[:3]}
    lnet.run(host.node())
    assert kernel.nets["efa"] == CHOSEN
    assert not host.ran("lnetctl", "lnet", "configure")


def test_lnet_that_is_up_keeps_its_tcp(host: FakeHost, kernel: Lnet) -> None:
    kernel.nets = {"lo": [], "tcp": ["ens5"]}
    lnet.run(host.node())
    assert kernel.nets["tcp"] == ["ens5", "ens6"]


def test_every_boot_does_it_again_before_anything_is_mounted(host: FakeHost, kernel: Lnet) -> None:
    lnet.run(host.node())
    unit = host.text(f"/etc/systemd/system/{lnet.UNIT}")
    commands = [line for line in unit.splitlines() if line.startswith("ExecStart")]
    others = [line for line in unit.splitlines() if line not in commands]
    # systemd.special(7): what remote mounts wait for, and what asks for it.
    assert others == [
        "# Made by the HyperPod lifecycle scripts.",
        "[Unit]",
        "Description=LNet over TCP and EFA",
        "Wants=network-online.target remote-fs-pre.target",
        "After=network-online.target",
        "Before=remote-fs-pre.target kubelet.service",
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    # A command that fails must not keep the file system from being mounted.
    assert [line.removeprefix("ExecStart=-/usr/bin/") for line in commands] == [
        "modprobe kefalnd ipif_name=ens6",
        "modprobe ksocklnd",
        "lnetctl lnet configure",
        "lnetctl net add --net tcp --if ens6",
        *(f"lnetctl net add --net efa --if {device} --peer-credits 32" for device in CHOSEN),
        "lnetctl set discovery 1",
        "lnetctl udsp add --src efa --priority 0",
    ]
    assert host.path(f"/etc/systemd/system/multi-user.target.wants/{lnet.UNIT}").is_symlink()


def test_an_image_without_the_module_is_reported_and_lnet_is_left_alone(host: FakeHost, kernel: Lnet) -> None:
    kernel.modules = {"ksocklnd"}
    why = "modprobe: FATAL: Module kefalnd not found"
    assert warned(host.node()) == f"this image's Lustre client has no kefalnd ({why})"
    assert not [call for call in host.calls if call[0] == "lnetctl"]


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("2.12.0g\n", "version 2.12.0g"),
        ("1.9\n", "version 1.9"),
        (None, "of no known version (no /sys/module/efa/version)"),
    ],
)
def test_a_driver_that_is_too_old_is_said_and_nothing_is_loaded(
    host: FakeHost, kernel: Lnet, version: str | None, text: str
) -> None:
    path = host.path("/sys/module/efa/version")
    if version:
        path.write_text(version)
    else:
        path.unlink()
    assert warned(host.node()) == f"the EFA driver is {text}; at least 2.12.1 is needed"
    assert not host.ran("modprobe")


def test_an_image_without_lnetctl_is_said(host: FakeHost, kernel: Lnet) -> None:
    host.missing.add("lnetctl")
    assert warned(host.node()) == "this image has no lnetctl, a command of the Lustre client"


def test_devices_that_are_not_there_are_said(host: FakeHost, kernel: Lnet) -> None:
    host.path("/sys/class/infiniband").rename(host.path("/sys/class/gone"))
    assert warned(host.node()) == "no EFA device in /sys/class/infiniband"


def test_a_node_without_a_default_route_uses_no_efa(host: FakeHost, kernel: Lnet) -> None:
    host.path("/proc/net/route").unlink()
    assert warned(host.node()) == "there is no default route"
    assert not host.ran("modprobe")


def test_tcp_stays_where_lnet_takes_no_efa(host: FakeHost, kernel: Lnet) -> None:
    kernel.refused = set(CHOSEN)
    assert warned(host.node()) == "LNet took none of 8 EFA interfaces (rdmap0s27: cannot add rdmap0s27)"
    assert kernel.nets == {"lo": [], "tcp": ["ens6"]}
    assert not host.path(f"/etc/systemd/system/{lnet.UNIT}").exists()


def test_some_interfaces_are_better_than_none(host: FakeHost, kernel: Lnet) -> None:
    kernel.refused = {CHOSEN[3]}
    node = host.node()
    lnet.run(node)
    assert list(node.warnings.values()) == [
        ["LNet did not take 1 of 8 EFA interfaces (rdmap12s27: cannot add rdmap12s27)"]
    ]
    assert len(kernel.nets["efa"]) == 7


def test_lnet_is_left_to_the_mount_where_it_takes_no_tcp(host: FakeHost, kernel: Lnet) -> None:
    kernel.refused = {"ens6"}
    assert warned(host.node()) == "`lnetctl net add --net` failed: cannot add ens6"
    assert kernel.nets == {}


@pytest.mark.parametrize("role", ["controller", "login"])
def test_nodes_without_efa_have_nothing_to_do(world: World, role: str) -> None:
    with pytest.raises(Skip, match=r"cannot use EFA on ml\.m5"):
        lnet.run(world.node(role).node())


def test_devices_are_taken_evenly_and_in_the_order_of_their_buses() -> None:
    assert lnet.choose(["rdmap113s0", "rdmap79s0", "rdmap96s0", "rdmap130s0"], 2) == ["rdmap79s0", "rdmap113s0"]
    assert lnet.choose(["rdmap0s6"], 8) == ["rdmap0s6"]
    assert lnet.choose([], 8) == []


def test_slurm_nodes_do_it_before_the_mount_and_eks_nodes_once_the_client_is_loaded(world: World) -> None:
    def needs() -> dict[str, tuple[str, ...]]:
        return {step.name: step.needs for step in steps.for_orchestrator(world.node("worker").node(identified=False))}

    assert "lnet" in needs()["fsx"]
    world.render(network=VPC, fsx={**FSX, "homeFileSystemId": HOME})
    assert ("lnet" in needs()["fsx"], "home" in needs()["ssh"]) == (True, True)
    world.render(orchestrator="eks")
    assert needs()["lnet"] == ("lustre-client",)
    world.render(fsx={})
    assert "lnet" not in needs()
