"""What the tests of the health checks have in common: a node's subject, and what its tools and slurmctld say."""

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from hyperpod_node.health import setup
from hyperpod_node.health.model import Subject
from hyperpod_node.host.host import Result
from hyperpod_node.network import transport

from tests.lifecycle.rig import FakeHost

# What `nvidia-smi -q -x` printed on a machine with one H100 and driver 580.159.04: the sections that checks read.
SHOWN = Path(__file__).with_name("nvidia-smi-h100.xml")
# Where it has what a test changes.
PLACES = {
    "width": "pci/pci_gpu_link_info/link_widths/current_link_width",
    "sram": "ecc_errors/aggregate/sram_threshold_exceeded",
    "pending": "remapped_rows/remapped_row_pending",
    "failure": "remapped_rows/remapped_row_failure",
    "state": "fabric/state",
    "status": "fabric/status",
}


def subject(host: FakeHost, **more: object) -> Subject:
    """The host as the checks get it, on Slurm."""
    return Subject(host, host.node().identity.group, "/fsx", **more)  # type: ignore[arg-type]


# What nvidia-smi says in place of a GPU's links where none is active (leptonai/gpud, issue 1085).
NO_LINK = "NVML: Unable to retrieve NVLink information as all links are inActive\n"


def gpus(host: FakeHost, links: str = "26.562 GB/s", more: str = "", **second: str) -> None:
    """Let nvidia-smi show eight GPUs, of which the second differs. ``more``: what it says of other GPUs' links."""
    document = _shown(tuple(second.items()))
    nvlink = f"GPU 0: NVIDIA H100 (UUID: x)\n\t Link 0: 26.562 GB/s\n\t Link 1: {links}\n{more}"
    if not links:
        nvlink = more

    def smi(_: FakeHost, args: Sequence[str], __: str | None) -> Result:
        return Result(0, nvlink if "nvlink" in args else document)

    host.commands["nvidia-smi"] = smi


@cache
def _shown(second: tuple[tuple[str, str], ...]) -> str:
    shown = ElementTree.parse(SHOWN).getroot()
    (whole,) = shown.findall("gpu")
    shown.remove(whole)
    for number in range(8):
        gpu = copy.deepcopy(whole)
        gpu.set("id", f"0000:{number:02x}:00.0")
        for name, text in second if number == 1 else ():
            (element,) = gpu.findall(PLACES[name])
            element.text = text
        shown.append(gpu)
    return ElementTree.tostring(shown, encoding="unicode")


def put(host: FakeHost, name: str, text: str = "") -> None:
    """Write a file, of the kernel's for example."""
    path = host.path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def well(host: FakeHost) -> None:
    """Everything that the checks look at, in order."""
    gpus(host)
    put(host, "/dev/kmsg", "6,1,10,-;Linux version 6.8\n")
    put(host, "/proc/self/mounts", "overlay / overlay rw 0 0\nfs@tcp:/x /fsx lustre rw 0 0\n")
    host.path("/fsx").mkdir(exist_ok=True)
    for number in range(8):
        name = f"0000:{number:02x}:00.0"
        host.path(f"/proc/driver/nvidia/gpus/{name}").mkdir(parents=True, exist_ok=True)
        put(host, f"/sys/bus/pci/devices/{name}/numa_node", f"{number // 4}\n")
    for index, name in enumerate(transport.efa_devices(host)):
        device = f"/sys/class/infiniband/{name}"
        # The rig's lead to one device, and these are on two NUMA nodes.
        if host.path(device).is_symlink():
            host.path(device).unlink()
        put(host, f"{device}/device/vendor", "0x1d0f\n")
        put(host, f"{device}/device/numa_node", f"{index % 2}\n")
        put(host, f"{device}/ports/1/state", "4: ACTIVE\n")


@dataclass
class Controller:
    """slurmctld as scontrol and sinfo show it. ``nodes``: state and reason by name."""

    nodes: dict[str, list[str]]
    deaf: bool = False
    updates: list[tuple[str, ...]] = field(default_factory=list)

    def scontrol(self, _: FakeHost, args: Sequence[str], __: str | None) -> Result:
        if self.deaf:
            return Result(1, "", "Unable to contact slurm controller (connect failure)")
        if args[1] == "show":
            if args[3] not in self.nodes:
                return Result(1, "", f"Node {args[3]} not found")
            state, reason = self.nodes[args[3]]
            more = f" Reason={reason} [root@2026-11-22T17:00:00]" if reason else ""
            return Result(0, f"NodeName={args[3]} Arch=x86_64 State={state} CPUs=8{more}\n")
        if args[1] != "update":
            return Result(1, "", f"invalid keyword: {args[1]}")
        self.updates.append(tuple(args[2:]))
        words = dict(word.split("=", 1) for word in args[2:])
        was, reason = self.nodes[words["NodeName"]]
        new = {"DRAIN": f"{was.split('+')[0]}+DRAIN", "RESUME": "IDLE", "FAIL": "FAIL"}[words["State"]]
        self.nodes[words["NodeName"]] = [new, "" if new == "IDLE" else words.get("Reason", reason)]
        return Result(0)

    def sinfo(self, *_: object) -> Result:
        def shown(state: str) -> str:
            return "drained" if re.search("DRAIN", state) else state.lower()

        lines = (f"{name:<128}{shown(state):<32}{reason:<64}" for name, (state, reason) in self.nodes.items())
        return Result(0, "\n".join(lines) + "\n")


def slurm(host: FakeHost, others: int = 3) -> Controller:
    """A controller that knows this node, idle, and others, too."""
    nodes = {host.hostname(): ["IDLE", ""], **{f"other-{n}": ["IDLE", ""] for n in range(others)}}
    found = Controller(nodes)
    host.commands |= {"scontrol": found.scontrol, "sinfo": found.sinfo}
    return found


def prepare(host: FakeHost) -> None:
    """Run the boot steps that leave what the checks need."""
    host.remember()
    setup.run(host.node())
