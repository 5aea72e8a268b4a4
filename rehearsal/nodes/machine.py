"""An instance type as seen from inside: its catalogue row as device files, sysfs and command output."""

import json
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.catalogue.accelerators import InstanceType

# Linux's major number for local and experimental use: the files exist, but opening them finds no driver.
_EXPERIMENTAL = 240
# PCI device ids of the EFA generations (amzn-drivers, efa_pci_id). The first one does not support RDMA read.
_EFA_PCI = {False: "0xefa0", True: "0xefa2"}
# NVIDIA, "CUDA GPU Compute Capability".
_COMPUTE_CAPABILITY = {
    "T4": "7.5",
    "A10G": "8.6",
    "L4": "8.9",
    "L40S": "8.9",
    "A100": "8.0",
    "H100": "9.0",
    "H200": "9.0",
    "B200": "10.0",
    "GB200": "10.0",
    "B300": "10.3",
    "RTX PRO 4500": "12.0",
    "RTX PRO Server 6000": "12.0",
}


@dataclass(frozen=True)
class Machine:
    """One instance: its type, and whether it has EFA, which the catalogue leaves open for some types."""

    kind: InstanceType
    efa_present: bool | None = None

    @property
    def efa_devices(self) -> int:
        """How many EFA devices the operating system sees. "maybe" means none, as measured on HyperPod."""
        present = self.kind.efa == "yes" if self.efa_present is None else self.efa_present
        return self.kind.efa_interfaces if present else 0

    @property
    def efa_names(self) -> list[str]:
        """The devices' names, which rdma-core derives from PCI addresses."""
        return [f"rdmap{16 + number}s27" for number in range(self.efa_devices)]

    @property
    def modules(self) -> list[str]:
        """Kernel modules that are loaded or can be."""
        found = ["lustre", "lnet", "ksocklnd", "nvme"]
        found += ["efa", "ib_uverbs", "ib_core", "kefalnd"] if self.efa_devices else []
        found += ["nvidia", "nvidia_uvm"] if self.kind.accelerator == "gpu" else []
        return found + (["neuron"] if self.kind.accelerator == "trainium" else [])

    def as_json(self, name: str) -> dict[str, Any]:
        """The facts that the host's commands read (``/etc/rehearsal/machine.json``)."""
        kind = self.kind
        return {
            "instance_type": kind.name,
            "accelerator_model": kind.accelerator_model,
            "accelerator_memory_gib": kind.accelerator_memory_gib,
            "compute_capability": _COMPUTE_CAPABILITY.get(kind.accelerator_model, ""),
            "gpus": kind.accelerators if kind.accelerator == "gpu" else 0,
            "chips": kind.accelerators if kind.accelerator == "trainium" else 0,
            "neuron_cores": kind.neuron_cores,
            "efa_devices": self.efa_devices,
            "efa_names": self.efa_names,
            "rdma_read": kind.rdma_read,
            "nvme_disks": kind.nvme_disks,
            "nvme_gb_each": kind.nvme_gb_each,
            "seed": zlib.crc32(name.encode()),
        }

    def make_devices(self, folder: Path) -> None:
        """Create the instance type's own files in ``/dev``."""
        kind, numbers = self.kind, iter(range(1 << 16))
        names: list[str] = []
        if kind.accelerator == "gpu":
            names += [f"nvidia{number}" for number in range(kind.accelerators)]
            names += ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"]
        elif kind.accelerator == "trainium":
            names += [f"neuron{number}" for number in range(kind.accelerators)]
        names += [f"infiniband/uverbs{number}" for number in range(self.efa_devices)]
        disks = ["nvme0n1", *(f"nvme{number + 1}n1" for number in range(kind.nvme_disks))]
        for name in names + disks:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            form = stat.S_IFBLK if name in disks else stat.S_IFCHR
            os.mknod(path, form | 0o666, os.makedev(_EXPERIMENTAL, next(numbers)))
            path.chmod(0o660 if name in disks else 0o666)

    def make_sysfs(self, folder: Path) -> None:
        """Create the instance type's ``/sys``: links to the machine's own devices, and files for fabric and disks."""
        real = Path("/run/rehearsal/sysfs")
        for name in ("class", "module", "block", "fs/cgroup"):
            (folder / name).mkdir(parents=True)
        for name in ("devices", "kernel", "bus", "class/net", "class/dmi"):
            (folder / name).symlink_to(real / name)
        for module in self.modules:
            (folder / "module" / module).mkdir()
        if self.efa_devices:
            (folder / "module/efa/version").write_text("2.13.0g\n")
        for number, name in enumerate(self.efa_names):
            device = folder / "class/infiniband" / name / "device"
            device.mkdir(parents=True)
            (device / "vendor").write_text("0x1d0f\n")
            (device / "device").write_text(_EFA_PCI[self.kind.rdma_read] + "\n")
            (device / "infiniband_verbs" / f"uverbs{number}").mkdir(parents=True)
        for number in range(self.kind.nvme_disks + 1):
            device = folder / f"block/nvme{number}n1/device"
            device.mkdir(parents=True)
            model = "Amazon EC2 NVMe Instance Storage" if number else "Amazon Elastic Block Store"
            (device / "model").write_text(f"{model:<40}\n")
            size = self.kind.nvme_gb_each * 10**9 if number else 100 << 30
            (device.parent / "size").write_text(f"{size // 512}\n")

    def write(self, disk: Path, name: str, facts: dict[str, Any]) -> None:
        """Turn a host's directory into this instance: devices, sysfs, and the facts that its commands read."""
        self.make_devices(disk / "dev")
        self.make_sysfs(disk / "sys")
        etc = disk / "upper/etc/rehearsal"
        etc.mkdir(parents=True, exist_ok=True)
        (etc / "machine.json").write_text(json.dumps({**self.as_json(name), **facts}))
        (etc / "modules").write_text("\n".join(self.modules) + "\n")
