"""The shared file system: by its tag or its id. Waits for it, mounts it, and checks that it is writable."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..facts.model import CLUSTER_ID_TAG, Node
from ..host import aws_cli
from ..host.errors import NotYet, StepError
from . import fstab

# FSx API, FileSystem.Lifecycle: states that waiting does not change.
DEAD = ("FAILED", "DELETING", "MISCONFIGURED_UNAVAILABLE")
USABLE = ("AVAILABLE", "UPDATING", "MISCONFIGURED")
# Seconds that a new role's permissions may take to arrive (IAM is eventually consistent).
ACCESS_GRACE = 60.0
# All nodes of a cluster ask at once, and the API's rate limit is per account.
FIRST_WAIT, MOST_WAIT = 0.25, 8.0
LUSTRE_OPTIONS = "relatime,flock"
NFS_OPTIONS = "nfsvers=4.1,rsize=1048576,wsize=1048576,timeo=600,hard"


def run(node: Node) -> str:
    """Step ``fsx``."""
    existing, point = node.parameters.fsx_id, node.parameters.fsx_mount
    if node.by_image:
        detail = await_image_mount(node, point)
    else:
        detail = mount(node, {"id": existing} if existing else tagged(node, "LUSTRE"), point)
    _folders(node)
    node.facts["fsx"] = True
    return detail


def await_image_mount(node: Node, mount_point: str) -> str:
    """Wait until HyperPod has mounted the file system of InstanceStorageConfigs, and write to it."""
    host = node.host
    source = host.poll(
        f"HyperPod has not mounted {mount_point}, which InstanceStorageConfigs names",
        lambda: host.mounts().get(mount_point, ("",))[0],
        node.timeout("image"),
    )
    host.prove_writable(mount_point)
    return f"{source} is mounted at {mount_point} by the image"


def mount(node: Node, wanted: Mapping[str, str], mount_point: str) -> str:
    """Wait for the file system with an ``id``, or of a ``type`` with a tag; mount it and write to it."""
    if _in_place(node, mount_point):
        detail = f"{node.host.mounts()[mount_point][0]} is mounted at {mount_point}"
    else:
        detail = _mount(node, _wait(node, wanted), mount_point)
    node.host.prove_writable(mount_point)
    return detail


def _in_place(node: Node, mount_point: str) -> bool:
    """Whether it is mounted now, and a line in fstab mounts it after a reboot."""
    return mount_point in node.host.mounts() and fstab.source(node.host, mount_point) is not None


def tagged(node: Node, kind: str) -> Dict[str, str]:
    """Return the stack's own file system of a type, of which it has one at most."""
    return {"key": CLUSTER_ID_TAG, "value": node.parameters.cluster_id, "type": kind}


def _wait(node: Node, wanted: Mapping[str, str]) -> Mapping[str, Any]:
    """Wait for the file system until it can be mounted."""
    what = wanted.get("id") or f"tag {wanted['key']}={wanted['value']}"
    began = node.host.now()

    def look() -> Optional[Mapping[str, Any]]:
        try:
            answer = node.aws("fsx", "describe-file-systems")
        except aws_cli.Refused as refused:
            denied = "AccessDenied" in refused.code or "Unauthorized" in refused.code
            if denied and node.host.now() - began > ACCESS_GRACE:
                raise StepError(f"not permitted to look for the file system: {refused}") from None
            raise NotYet(str(refused)) from None
        return _pick(answer.get("FileSystems", []), wanted, what)

    return node.host.poll(
        f"the file system with {what} was not available in {node.parameters.region}",
        look,
        node.timeout("fsx"),
        first=FIRST_WAIT,
        most=MOST_WAIT,
    )


def _pick(systems: List[Mapping[str, Any]], wanted: Mapping[str, str], what: str) -> Mapping[str, Any]:
    """Return the right file system, if it can be mounted. Raises NotYet, or StepError if waiting cannot help."""
    matching = [s for s in systems if _matches(s, wanted)]
    living = [s for s in matching if s.get("Lifecycle") not in DEAD]
    if len(living) > 1:
        both = " and ".join(str(s["FileSystemId"]) for s in living)
        raise StepError(f"{len(living)} file systems have {what}: {both}; delete one or take its tag away")
    if not living:
        if matching:
            dead = matching[0]
            reason = (dead.get("FailureDetails") or {}).get("Message", "")
            raise StepError(
                f"file system {dead['FileSystemId']} is {dead['Lifecycle']}" + (f": {reason}" if reason else "")
            )
        others = ", ".join(str(s.get("FileSystemId")) for s in systems)
        raise NotYet(f"none has it yet; others there: {others}" if others else "the region has no file system")
    found = living[0]
    if found.get("Lifecycle") not in USABLE:
        raise NotYet(f"{found['FileSystemId']} is {found.get('Lifecycle')}")
    return found


def _matches(system: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    if "id" in wanted:
        return system.get("FileSystemId") == wanted["id"]
    return system.get("FileSystemType") == wanted["type"] and {"Key": wanted["key"], "Value": wanted["value"]} in [
        {"Key": tag.get("Key"), "Value": tag.get("Value")} for tag in system.get("Tags") or []
    ]


def _source(system: Mapping[str, Any]) -> Tuple[str, str, str]:
    """Return the source, type and options of the mount."""
    dns = system["DNSName"]
    if system["FileSystemType"] == "LUSTRE":
        return f"{dns}@tcp:/{system['LustreConfiguration']['MountName']}", "lustre", LUSTRE_OPTIONS
    return f"{dns}:/fsx", "nfs", NFS_OPTIONS


def _mount(node: Node, system: Mapping[str, Any], mount_point: str) -> str:
    host = node.host
    try:
        source, kind, options = _source(system)
    except KeyError as error:
        raise StepError(f"file system {system.get('FileSystemId')} has no {error}") from None
    if mount_point not in host.mounts():
        host.folder(mount_point)

        def attempt() -> bool:
            # A mount that hangs leaves time for another attempt.
            patience = node.timeout("mount") / 2
            result = host.run("mount", "-t", kind, "-o", options, source, mount_point, check=False, timeout=patience)
            if result.code == 0 or mount_point in host.mounts():
                return True
            if "unknown filesystem type" in result.err:
                raise StepError(f"the {kind} client is not installed: {result.reason}")
            raise NotYet(result.reason)

        # Its name may resolve only some time after the file system is available.
        host.poll(f"{source} was not mounted at {mount_point}", attempt, node.timeout("mount"), first=0.2, most=5)
    # After the mount, so that a line in fstab means that the mount has worked.
    fstab.put(host, f"{source} {mount_point} {kind} {options},_netdev,x-systemd.automount 0 0")
    return f"{system['FileSystemId']} mounted at {mount_point}"


def _folders(node: Node) -> None:
    host, shared = node.host, node.shared
    host.folder(shared)
    for name in ("nodes", "hosts", "slurm"):
        host.folder(f"{shared}/{name}")
    host.folder(node.private, mode=0o700)
    # Everybody's checkpoints and runs.
    host.folder(f"{node.parameters.fsx_mount}/checkpoints", mode=0o1777)
