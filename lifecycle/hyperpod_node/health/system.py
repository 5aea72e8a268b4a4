"""Checks of every node: its file systems, its clock, and that only root has its role."""

from __future__ import annotations

import os
from typing import List, Optional, Tuple

from ..host.errors import StepError
from ..metrics.node import lustre_efa_up
from ..network import metadata_guard, pod_metadata_guard
from ..storage import pod_disk, scratch
from ..system import clock
from .model import Finding, Subject, bad, load, ok, unknown

# Seconds in which a file system has to answer (a client of Lustre waits for ever by default).
LUSTRE_SECONDS = 5.0
IMDS_SECONDS = 5.0
# The least part of a disk's bytes and files that has to be free. With less, logs and jobs' own files fail. Kubernetes
# evicts pods much earlier, at 10 % of the node's disk.
LEAST_FREE = 0.01
DISKS = ("/", pod_disk.DATA_VOLUME, scratch.IMAGE_MOUNT, scratch.MOUNT_POINT)


def lustre(subject: Subject) -> Optional[Finding]:
    """Check that the shared file system is mounted, and every Lustre mount answers."""
    host = subject.host
    table = {point: kind for point, kind, _ in _mounts(subject)}
    wanted = [subject.mount] if subject.mount else [point for point, kind in table.items() if kind == "lustre"]
    missing = [point for point in wanted if point not in table]
    if missing:
        return bad(f"{', '.join(missing)} is not mounted")
    # Without pods that use it, EKS's nodes have no such mount.
    dead = [f"{point} {why}" for point in wanted for why in [host.stuck(point, LUSTRE_SECONDS)] if why]
    return bad(", ".join(dead)) if dead else ok(f"{len(wanted)} mounts")


def disks(subject: Subject) -> Finding:
    """Check that the root and the data volumes are not full, nor read-only, as the kernel makes a broken disk."""
    reasons: List[str] = []
    for point, _, options in _mounts(subject):
        if point not in DISKS:
            continue
        if "ro" in options.split(","):
            reasons.append(f"{point} is read-only")
            continue
        try:
            left = os.statvfs(str(subject.host.path(point)))
        except OSError as error:
            reasons.append(f"{point}: {error.strerror}")
            continue
        # Some file systems have no fixed number of files.
        parts = {"space": (left.f_bavail, left.f_blocks), "files": (left.f_favail, left.f_files)}
        reasons += [f"{point} has no {what} left" for what, (free, all_) in parts.items() if free < all_ * LEAST_FREE]
    return bad(", ".join(reasons)) if reasons else ok()


def _mounts(subject: Subject) -> List[Tuple[str, str, str]]:
    """Return mount point, type and options; of several at one place the last, which covers the others."""
    found = {}
    for line in (subject.host.read("/proc/self/mounts") or "").splitlines():
        fields = line.split()
        if len(fields) >= 4:
            found[fields[1]] = (fields[1], fields[2], fields[3])
    return list(found.values())


def time(subject: Subject) -> Finding:
    """Compare the clock with the instance metadata's, by the boot's limit: MUNGE and AWS refuse one that is off."""
    try:
        skew = clock.skew(subject.host, subject.imds_v1, IMDS_SECONDS)
    except StepError as error:
        return unknown(str(error))
    if abs(skew) > clock.LARGEST_SKEW:
        return bad(f"the clock is {skew:+.0f} s off the instance metadata's")
    return ok(f"{skew:+.0f} s")


def role(subject: Subject) -> Finding:
    """Check that users (Slurm) or pods (EKS) do not reach instance metadata, which gives the node's role."""
    why = metadata_guard.exposure(subject.host) if subject.mount else pod_metadata_guard.exposure(subject.host)
    return bad(why) if why else ok()


def setup(subject: Subject) -> Optional[Finding]:
    """Check on EKS that every lifecycle step succeeded, and Lustre has kept EFA (on Slurm hyperpod-validate checks
    both).
    """
    if subject.mount:
        return None
    steps = load(subject.host, f"{subject.host.settings.log_folder}/summary.json").get("steps")
    if steps is None:
        return unknown("the lifecycle scripts have not ended")
    lacking = [step for step in steps if step["result"] not in ("ok", "skipped")]
    said = [f"{step['name']}: {', '.join(step['warnings']) or step['detail']}" for step in lacking]
    wanted = subject.group.lustre_efa_interfaces if "lnet" in {step["name"] for step in steps} else 0
    if wanted and not lacking and (up := lustre_efa_up(subject.host)) < wanted:
        said.append(f"lnet: {up} of {wanted} EFA interfaces are up: TCP has the rest")
    return bad("; ".join(said)) if said else ok()
