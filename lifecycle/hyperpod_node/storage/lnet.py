"""LNet, the network of Lustre, over EFA in addition to TCP.

A client reaches its servers over TCP, discovers that they also have EFA, and prefers it. Nothing here may break the
mount: a failure is a warning, and the file system is mounted over TCP. It uses the image's programs and installs
nothing. The procedure and its numbers: Amazon FSx for Lustre User Guide, "Configuring EFA clients"; Amazon EKS User
Guide, "Optimize Amazon FSx for Lustre performance on nodes (EFA)".
"""

from __future__ import annotations

import re
from typing import Dict, List, Sequence

from ..facts.model import Node
from ..host.errors import Skip, StepError
from ..host.host import Host
from ..network.transport import efa_devices

MIN_EFA_DRIVER = (2, 12, 1)
PEER_CREDITS = 32
UNITS = "/etc/systemd/system"
UNIT = "hyperpod-lnet.service"
# LNet forgets all of it at a reboot. A command that fails then must not prevent the mount.
UNIT_TEXT = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=LNet over TCP and EFA
Wants=network-online.target remote-fs-pre.target
After=network-online.target
Before=remote-fs-pre.target kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
{commands}

[Install]
WantedBy=multi-user.target
"""


def run(node: Node) -> str:
    """Step ``lnet``."""
    group = node.identity.group
    if not group.lustre_efa_interfaces:
        raise Skip(f"a Lustre client cannot use EFA on {group.instance_type}")
    try:
        return _set_up(node, group.lustre_efa_interfaces)
    except StepError as error:
        node.warn(f"the file system is used over TCP, not EFA: {error}")
        return "TCP alone"


def choose(devices: Sequence[str], most: int) -> List[str]:
    """Choose at most that many devices, evenly over the PCI buses in their names: no two behind one switch."""
    ordered = sorted(devices, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])
    count = min(most, len(ordered))
    return [ordered[index * len(ordered) // count] for index in range(count)]


def _set_up(node: Node, most: int) -> str:
    host = node.host
    devices, interface = choose(efa_devices(host), most), host.default_interface()
    if not devices:
        raise StepError("no EFA device in /sys/class/infiniband")
    if interface is None:
        raise StepError("there is no default route")
    _check_software(host)
    for module in _modules(interface):
        loaded = host.run("modprobe", *module, check=False, timeout=60)
        if loaded.code != 0:
            raise StepError(f"this image's Lustre client has no {module[0]} ({loaded.reason})")
    _tcp(host, interface)
    _efa(node, devices)
    _prefer_efa(host)
    _at_boot(host, interface, devices)
    return f"{len(devices)} EFA interfaces besides TCP on {interface}"


def _check_software(host: Host) -> None:
    version = (host.read("/sys/module/efa/version") or "").strip()
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    if numbers < MIN_EFA_DRIVER:
        wanted = ".".join(map(str, MIN_EFA_DRIVER))
        found = f"version {version}" if version else "of no known version (no /sys/module/efa/version)"
        raise StepError(f"the EFA driver is {found}; at least {wanted} is needed")
    if host.which("lnetctl") is None:
        raise StepError("this image has no lnetctl, a command of the Lustre client")


# The commands, for now and for every boot


def _modules(interface: str) -> List[List[str]]:
    # The addresses of EFA's net are derived from this interface's.
    return [["kefalnd", f"ipif_name={interface}"], ["ksocklnd"]]


def _add_tcp(interface: str) -> List[str]:
    return ["lnetctl", "net", "add", "--net", "tcp", "--if", interface]


def _add_efa(device: str) -> List[str]:
    return ["lnetctl", "net", "add", "--net", "efa", "--if", device, "--peer-credits", str(PEER_CREDITS)]


CONFIGURE = ["lnetctl", "lnet", "configure"]
DISCOVER = ["lnetctl", "set", "discovery", "1"]
PREFER = ["lnetctl", "udsp", "add", "--src", "efa", "--priority", "0"]


def _nets(host: Host) -> Dict[str, List[str]]:
    """Return the interfaces of every net; empty if LNet is down."""
    nets: Dict[str, List[str]] = {}
    current: List[str] = []
    for line in host.run("lnetctl", "net", "show", check=False).out.splitlines():
        net, interface = re.match(r"\s*- net type: (\S+)", line), re.match(r"\s*\d+: (\S+)", line)
        if net:
            current = nets.setdefault(net[1], [])
        elif interface:
            current.append(interface[1])
    return nets


def _tcp(host: Host, interface: str) -> None:
    nets = _nets(host)
    if not nets:
        host.run(*CONFIGURE)
    if interface in nets.get("tcp", []):
        return
    try:
        host.run(*_add_tcp(interface))
    except StepError:
        if "tcp" not in nets:
            # A mount brings LNet up with TCP if it is down.
            host.run("lnetctl", "lnet", "unconfigure", check=False)
        raise


def _efa(node: Node, devices: Sequence[str]) -> None:
    host, before, reason = node.host, _nets(node.host).get("efa", []), ""
    for device in devices:
        if device not in before:
            added = host.run(*_add_efa(device), check=False)
            reason = reason or ("" if added.code == 0 else f"{device}: {added.reason}")
    present = _nets(host).get("efa", [])
    absent = [device for device in devices if device not in present]
    if len(absent) == len(devices):
        raise StepError(f"LNet took none of {len(devices)} EFA interfaces ({reason})")
    if absent:
        node.warn(f"LNet did not take {len(absent)} of {len(devices)} EFA interfaces ({reason})")


def _prefer_efa(host: Host) -> None:
    if not re.search(r"^\s*discovery: 1$", host.run("lnetctl", "global", "show").out, re.MULTILINE):
        host.run(*DISCOVER)
    if not re.search(r"\bsrc: efa\b", host.run("lnetctl", "udsp", "show", check=False).out):
        host.run(*PREFER)


def _at_boot(host: Host, interface: str, devices: Sequence[str]) -> None:
    commands = [["modprobe", *module] for module in _modules(interface)]
    commands += [CONFIGURE, _add_tcp(interface), *map(_add_efa, devices), DISCOVER, PREFER]
    lines = [f"ExecStart=-{' '.join([host.which(name) or name, *words])}" for name, *words in commands]
    host.write(f"{UNITS}/{UNIT}", UNIT_TEXT.format(commands="\n".join(lines)))
    # Same as `systemctl enable`, but without a command if it is enabled.
    host.link(f"{UNITS}/multi-user.target.wants/{UNIT}", f"{UNITS}/{UNIT}")
