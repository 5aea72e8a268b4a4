"""The list of checks, and one run of all of them at the same time."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Dict, List, Mapping

from ..host.errors import StepError
from . import devices, gpu, own, system, xid
from .model import Check, Finding, Subject, unknown

CHECKS: Dict[str, Check] = {
    "accelerators": devices.count_accelerators,
    "efa": devices.count_efa,
    "ecc": gpu.ecc,
    "xid": xid.check,
    "nvlink": gpu.nvlink,
    "lustre": system.lustre,
    "disk": system.disks,
    "clock": system.time,
    "metadata": system.role,
    "setup": system.setup,
    "affinity": devices.affinity,
    "pcie": gpu.pcie,
    "dcgm": gpu.dcgm,
}
# Faults that no drain, reboot or replacement repairs, and that jobs tolerate.
_ONLY_REPORTED = ("setup",)
# Seconds for all of them. Slurm kills its HealthCheckProgram after 60 (slurm.conf(5)).
LIMIT = 45.0


@dataclass(frozen=True)
class Result:
    """One check's finding, and how long it took."""

    check: str
    finding: Finding
    seconds: float


def run(subject: Subject, limit: float = LIMIT) -> List[Result]:
    """Run every check that applies to this node, each on its own thread.

    A check that fails, hangs or has a defect is "unknown": only a fault that was seen takes a node out.
    """
    checks = {**CHECKS, **own.found(subject.host)}
    done: Dict[str, Result] = {}
    skipped: List[str] = []
    threads = [
        threading.Thread(target=_one, args=(subject, name, check, done, skipped), daemon=True)
        for name, check in checks.items()
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = Result("", unknown(f"no answer within {limit:g} s"), limit)
    return [_named(done.get(name, late), name) for name in checks if name not in list(skipped)]


def _named(result: Result, name: str) -> Result:
    return Result(name, result.finding, result.seconds)


def _one(subject: Subject, name: str, check: Check, done: Dict[str, Result], skipped: List[str]) -> None:
    began = time.monotonic()
    try:
        finding = check(subject)
    except StepError as error:
        finding = unknown(str(error))
    except Exception as error:  # our own defect must not drain a cluster
        finding = unknown(f"{type(error).__name__}: {error}")
    if finding is None:
        skipped.append(name)
        return
    done[name] = Result(name, finding, time.monotonic() - began)


def wrong(results: List[Result]) -> Mapping[str, str]:
    """Return the reasons that take the node out, by check."""
    bad = [one for one in results if one.finding.status == "bad" and one.check not in _ONLY_REPORTED]
    return {one.check: one.finding.detail for one in bad}
