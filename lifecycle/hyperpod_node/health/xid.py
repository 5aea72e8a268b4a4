"""XIDs: what the NVIDIA driver writes to the kernel's log when a GPU has a fault, and what NVIDIA says to do.

xid.csv has the immediate action of each code by NVIDIA's XID catalogue of 2025-10-29 (by way of leptonai/gpud). Most
ask for nothing, or for the job to start again, which Slurm does. A node is bad only if the GPU has to be reset or
the machine rebooted. XIDs that NVIDIA leaves to a workflow:

* 48, an uncorrectable memory error: the workflow begins with draining the node.
* 74, an NVLink error: the link is not to be trusted until a reset, except where its registers have nothing but what
  NVIDIA says to ignore, or to go on with.
* 144 to 150, NVLink 5 and later: those whose line says that they are fatal, with the exceptions of NVIDIA's table
  "XID 144-150 Decode".
* 154 names the action itself; the last one of a GPU counts, and "None" takes back an earlier one.
* 159 asks for a reset where unified memory is in use, and CUDA always uses it (NVIDIA driver's README, "Installed
  components": nvidia-uvm).
* 45, a channel that was removed, follows another XID or the end of a process.
"""

from __future__ import annotations

import csv
import functools
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from ..host import kernel_queries
from .model import Finding, Subject, bad, ok, unknown

RECORD = re.compile(r"^(\d+),(\d+),\d+,[^;]*;(.*)$")
# The kernel's own records are of facility 0, and nobody can write such a one to /dev/kmsg (the kernel's
# ABI/testing/dev-kmsg): a prefix, 8 times the facility plus the level, below this.
OTHERS = 8
# The kernel quotes what users say: an unknown mount option, after the name of a file system, and at the very start the
# name of a process that crashed, at most 15 characters. So the line begins with it and has the whole address.
LINE = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f]{4,8}(?::[0-9A-Fa-f]{2}){2}(?:\.\d)?)(?: [^)]*)?\): (\d+),?(.*)")
ACTIONS_THAT_END_IT = ("RESET_GPU", "RESTART_BM", "RESTART_VM", "WORKFLOW_XID_48", "CHECK_UVM")
NVLINK, NVLINK5, BY_ITSELF = "WORKFLOW_NVLINK_ERR", "WORKFLOW_NVLINK5_ERR", "XID_154"
REGISTERS = re.compile(r"0x[0-9a-fA-F]+")
# The catalogue's WORKFLOW_NVLINK_ERR: bits to ignore in the first register, and those of the fifth that tell of a
# threshold, with which operation continues.
HARMLESS = {0: 1 << 0 | 1 << 23 | 1 << 30, 4: 1 << 20 | 1 << 23 | 1 << 26 | 1 << 29}
# "XID 144-150 Decode", NETIR_LINK_EVT or NETIR_LINK_DOWN: the reasons, bits 20 to 25 of the first register, that ask
# for nothing though the link is down.
NO_RESET_FOR = (0b100110, 0b101000)
MOST_KEPT = 64


@functools.lru_cache(maxsize=None)
def actions() -> Mapping[int, str]:
    """Return NVIDIA's immediate action for each XID; empty if the catalogue has none."""
    with Path(__file__).with_name("xid.csv").open(encoding="utf-8") as file:
        return {int(row["xid"]): row["action"] for row in csv.DictReader(file)}


def needs_action(code: int, text: str) -> str:
    """Return why a node with this XID should get no more jobs; empty if it may continue."""
    action = actions().get(code, "")
    if action in ACTIONS_THAT_END_IT:
        return action
    if action == NVLINK and not _harmless(text):
        return action
    if action == NVLINK5 and _needs_reset(text):
        return action
    if action == BY_ITSELF:
        named = re.findall(r"\(([^()]*)\)", text)
        return named[-1] if named and named[-1].lower() != "none" else ""
    return ""


def _registers(text: str) -> List[int]:
    """Return the registers, in parentheses at the line's end."""
    return [int(one, 16) for one in REGISTERS.findall(text.rpartition("(")[2])]


def _harmless(text: str) -> bool:
    """Whether the registers of an XID 74 have bits, and only harmless ones."""
    registers = _registers(text)
    return any(registers) and not any(one & ~HARMLESS.get(place, 0) for place, one in enumerate(registers))


def _needs_reset(text: str) -> bool:
    """Of an XID from 144 to 150: name, severity, and in parentheses intrInfo, errorStatus and more."""
    registers = _registers(text)
    info, status = [*registers, 0, 0][:2]
    if "NETIR_LINK" in text and registers and info >> 20 & 0x3F in NO_RESET_FOR:
        return False
    if "RLW_RXPIPE" in text and status in (1, 2, 4):
        # The bit above the name's code, which is in ten bits before driver R575 and in seven since.
        return info & 0x7FF == 0b10011000010 or info & 0xFF == 0b10000110
    return re.search(r"(?<!non)(?<!non-)\bfatal\b", text, re.IGNORECASE) is not None


def check(subject: Subject) -> Optional[Finding]:
    """Check for XIDs since the boot, or since a person has put the node back to work.

    They are remembered, because the kernel's log is a ring and forgets.
    """
    if subject.group.accelerator != "gpu":
        return None
    memory, log = subject.memory, kernel_queries.kernel_log(subject.host.path("/dev/kmsg"))
    if log is None:
        return unknown("the kernel's log cannot be read")
    _remember(memory, log)
    kept: List[Dict[str, Any]] = memory.get("xids", [])
    reasons = []
    for one in kept:
        later = any(o["gpu"] == one["gpu"] and o["code"] == 154 and o["seq"] > one["seq"] for o in kept)
        why = "" if one["code"] == 154 and later else needs_action(one["code"], one["text"])
        if why:
            reasons.append(f"XID {one['code']} on {one['gpu']} ({why})")
    if reasons:
        return bad(", ".join(dict.fromkeys(reasons)))
    return ok(f"{len(kept)} XIDs that need no action of ours" if kept else "")


def accept(memory: Dict[str, Any]) -> None:
    """Accept the XIDs in the log so far: somebody has put the node back to work."""
    memory["accepted"] = memory.get("last", -1)
    memory["xids"] = []


def _remember(memory: Dict[str, Any], log: List[str]) -> None:
    since, kept = max(int(memory.get("accepted", -1)), int(memory.get("last", -1))), list(memory.get("xids", []))
    for line in log:
        record = RECORD.match(line)
        if not record or int(record.group(1)) >= OTHERS or int(record.group(2)) <= since:
            continue
        number, text = int(record.group(2)), record.group(3)
        memory["last"] = max(int(memory.get("last", -1)), number)
        found = LINE.match(text)
        if found:
            entry = {"seq": number, "gpu": found.group(1), "code": int(found.group(2)), "text": found.group(3)[:200]}
            kept.append(entry)
    # A job that fails again and again writes the same line each time; what ends it comes first.
    kept.sort(key=lambda one: (not needs_action(one["code"], one["text"]), one["seq"]))
    memory["xids"] = sorted(kept[:MOST_KEPT], key=lambda one: one["seq"])
