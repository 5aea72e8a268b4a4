"""Checks NVIDIA GPUs by nvidia-smi and DCGM, and Trainium's memory errors by its driver's counters.

Element names are those of ``nvidia-smi -q -x``; the absence of one means nothing.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional

from ..host.errors import StepError
from .dcgm import judge
from .model import Finding, Subject, bad, ok, unknown

# Counters of errors that cannot be corrected, per device (Neuron Sysfs User Guide). It has had two places for them.
NEURON = "/sys/devices/virtual/neuron_device"
NEURON_COUNTERS = ("mem_ecc_uncorrected", "sram_ecc_uncorrected")
# The GPUs that EC2 connects by NVLink where an instance has several (EC2, "Accelerated computing instances").
WITH_NVLINK = ("A100", "H100", "H200", "B200", "B300", "GB200")
# Seconds between two runs of DCGM's diagnostics on an idle node, and for one: level 1 takes a few.
DCGM_EVERY, DCGM_SECONDS = 3600.0, 40.0


def ecc(subject: Subject) -> Optional[Finding]:
    """Check for memory that cannot be repaired any more: a failed row remap, or more SRAM errors than NVIDIA allows.

    A pending remap or page retirement is no fault: it takes effect at the next reset (XID 63 asks for nothing).
    """
    if subject.group.accelerator == "trainium":
        return _neuron_ecc(subject)
    if subject.group.accelerator != "gpu":
        return None
    reasons, pending = [], []
    for gpu in subject.gpus():
        name = gpu.get("id", "?")
        if _says(gpu.findtext("remapped_rows/remapped_row_failure")):
            reasons.append(f"row remap failed on {name}")
        if any(_says(found.text) for found in gpu.findall(".//sram_threshold_exceeded")):
            reasons.append(f"SRAM error threshold exceeded on {name}")
        if _says(gpu.findtext("remapped_rows/remapped_row_pending")):
            pending.append(name)
    if reasons:
        return bad(", ".join(reasons))
    return ok(f"row remap pending on {', '.join(pending)}" if pending else "")


def _says(text: Optional[str]) -> bool:
    return (text or "").strip().lower() == "yes"


def _neuron_ecc(subject: Subject) -> Finding:
    found: Dict[str, int] = {}
    folder = subject.host.path(NEURON)
    for path in sorted(folder.glob("neuron*/**/*_ecc_uncorrected")) if folder.is_dir() else []:
        if path.name in NEURON_COUNTERS:
            inside = f"{NEURON}/{path.relative_to(folder)}"
            text = subject.host.read(inside if path.is_file() else inside + "/total") or ""
            if text.strip().isdigit():
                found[f"{path.name} on {path.relative_to(folder).parts[0]}"] = int(text)
    if not found:
        return unknown(f"no error counters below {NEURON}")
    wrong = [f"{count} {name}" for name, count in found.items() if count]
    return bad(", ".join(wrong)) if wrong else ok(f"{len(found)} counters are 0")


def nvlink(subject: Subject) -> Optional[Finding]:
    """Check that no NVLink of a GPU is inactive, and that the fabric manager has admitted every GPU."""
    if subject.group.accelerator != "gpu" or subject.group.accelerators < 2:
        return None
    out = [
        gpu.get("id", "?")
        for gpu in subject.gpus()
        if (gpu.findtext("fabric/state") or "").strip() == "Completed"
        and (gpu.findtext("fabric/status") or "").strip() not in ("Success", "N/A", "")
    ]
    if out:
        return bad(f"not in the NVLink fabric: {', '.join(out)}")
    said = subject.host.run("nvidia-smi", "nvlink", "-s", check=False, timeout=10)
    links = _links(said.out)
    if not links:
        raise StepError(f"nvidia-smi nvlink shows no GPU: {said.reason}")
    count = sum(states.count(True) for states in links.values())
    if not count and subject.group.accelerator_model not in WITH_NVLINK:
        return ok("no links")
    inactive = [f"GPU {name} link {n}" for name, states in links.items() for n, on in enumerate(states) if not on]
    inactive += [f"GPU {name}, all links" for name, states in links.items() if not states]
    return bad(f"inactive: {', '.join(inactive)}") if inactive else ok(f"{count} links")


def _links(shown: str) -> Dict[str, List[bool]]:
    """Return whether each link of each GPU is active. nvidia-smi lists no link of a GPU without an active one ("Unable
    to retrieve NVLink information as all links are inActive": leptonai/gpud, issue 1085).
    """
    found: Dict[str, List[bool]] = {}
    for line in shown.splitlines():
        gpu, link = re.match(r"GPU (\d+):", line), re.match(r"\s+Link \d+: (.*)", line)
        if gpu:
            found[gpu.group(1)] = []
        elif link and found:
            found[list(found)[-1]].append("inactive" not in link.group(1).lower())
    return found


def pcie(subject: Subject) -> Optional[Finding]:
    """Check that every GPU has as many PCIe lanes as the node's others. The catalogue has no maximum for a type."""
    if subject.group.accelerator != "gpu" or subject.group.accelerators < 2:
        return None
    widths: Dict[str, int] = {}
    for gpu in subject.gpus():
        text = gpu.findtext("pci/pci_gpu_link_info/link_widths/current_link_width") or ""
        lanes = re.match(r"\s*(\d+)x", text)
        if lanes:
            widths[gpu.get("id", "?")] = int(lanes.group(1))
    if not widths:
        return unknown("nvidia-smi shows no link width")
    most = max(widths.values())
    narrow = [f"{name} has {width} lanes" for name, width in widths.items() if width < most]
    return bad(f"{', '.join(narrow)}, others {most}") if narrow else ok(f"{most} lanes")


def dcgm(subject: Subject) -> Optional[Finding]:
    """Run ``dcgmi diag -r 1``, DCGM's quick check, while no job runs and an hour after the last one."""
    host, memory = subject.host, subject.memory
    if subject.group.accelerator != "gpu" or host.which("dcgmi") is None:
        return None
    if not subject.idle or host.wall() - float(memory.get("dcgm_time", 0.0)) < DCGM_EVERY:
        return Finding(**memory["dcgm"]) if "dcgm" in memory else None
    finding = _diagnose(subject)
    memory["dcgm_time"], memory["dcgm"] = host.wall(), {"status": finding.status, "detail": finding.detail}
    return finding


def _diagnose(subject: Subject) -> Finding:
    said = subject.host.run("dcgmi", "diag", "-r", "1", "-j", check=False, timeout=DCGM_SECONDS)
    return judge(1, said.out or said.reason)
