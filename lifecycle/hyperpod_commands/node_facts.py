"""``hyperpod-node-facts``: one line of JSON about the node it runs on. The other commands run it on the workers."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from hyperpod_node.facts import node_record

from .cluster import STATE, Trouble, record

# Where AWS's images have nccl-tests, newest first, and where people usually build it.
NCCL_TESTS = ("usr/local/cuda*/efa/test-*", "opt/nccl-tests/build", "usr/local/nccl-tests/build", "usr/local/bin")
PYTHONS = ("python3", "/opt/pytorch/bin/python3", "/opt/conda/bin/python3", "/usr/bin/python3")
# With -c, Python searches the working directory first, which any user may own.
HAS_TORCH = (
    "import sys; sys.path = [p for p in sys.path if p]; import importlib.util as i; "
    "sys.exit(i.find_spec('torch') is None)"
)


def facts(state: str = STATE) -> Dict[str, Any]:
    """Return what this node is, from its record and its current state."""
    try:
        own = record(f"{state}/{node_record.NAME}")
    except Trouble as trouble:
        return {"hostname": _hostname(), "error": str(trouble)}
    return {
        "hostname": _hostname(),
        "address": own.instance.address,
        "group": dataclasses.asdict(own.group),
        "transport": own.transport,
        "environment": task_environment(state),
        "devices": devices(own.group.gres),
        "nccl_tests": nccl_tests(),
        "mpirun": _first(["/opt/amazon/openmpi/bin/mpirun", shutil.which("mpirun") or ""]),
        "nccom_test": _first(["/opt/aws/neuron/bin/nccom-test", shutil.which("nccom-test") or ""]),
        "python": python(),
    }


def task_environment(state: str = STATE) -> Dict[str, str]:
    """Return the variables that a job's tasks get here."""
    try:
        text = Path(state, "task.env").read_text(encoding="utf-8")
    except OSError:
        return {}
    pairs = [line.partition("=") for line in text.splitlines() if "=" in line]
    return {name: value for name, _, value in pairs}


def devices(gres: str) -> int:
    """Count the accelerators in /dev."""
    stem = {"gpu": "nvidia", "neuron": "neuron"}.get(gres.partition(":")[0])
    return len([p for p in Path("/dev").glob(f"{stem}[0-9]*") if p.name[len(stem) :].isdigit()]) if stem else 0


def nccl_tests() -> str:
    """Return the folder of the nccl-tests binaries; empty without any."""
    for pattern in NCCL_TESTS:
        for folder in sorted(Path("/").glob(pattern), reverse=True):
            if os.access(str(folder / "all_reduce_perf"), os.X_OK):
                return str(folder)
    return ""


def python() -> str:
    """Return a Python that has PyTorch; empty without any. HYPERPOD_PYTHON is tried first."""
    for name in (os.environ.get("HYPERPOD_PYTHON", ""), *PYTHONS):
        path: Optional[str] = shutil.which(name) if name else None
        if path and subprocess.call([path, "-c", HAS_TORCH], stderr=subprocess.DEVNULL) == 0:
            return path
    return ""


def _first(paths: List[str]) -> str:
    return next((path for path in paths if path and os.access(path, os.X_OK)), "")


def _hostname() -> str:
    return socket.gethostname().split(".")[0]


if __name__ == "__main__":
    print(json.dumps(facts()), flush=True)
    sys.exit(0)
