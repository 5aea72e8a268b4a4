"""The commands of a node that is not there: each is a function of its host."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hyperpod_node.host.host import Result

from components.catalogue.accelerators import lookup

if TYPE_CHECKING:
    from tests.lifecycle.rig import FakeHost

Command = Callable[["FakeHost", Sequence[str], "str | None"], Result]
CREDENTIAL = "MUNGE:AwQFAAA:\n"


def _mdadm(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    """New disks have no array to assemble."""
    array = host.path("/dev/md/hyperpod-scratch")
    if "--create" in args:
        array.parent.mkdir(parents=True, exist_ok=True)
        array.touch()
    return Result(0 if array.exists() else 1)


def _systemctl(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    verb, units = args[1], [word for word in args[2:] if not word.startswith("--")]
    if verb == "is-active":
        return Result(0 if set(units) <= host.active else 3)
    if verb == "show":
        return Result(0, "\n\n".join("\n".join(_shown(host, unit)) for unit in units))
    if verb == "daemon-reload":
        # A copy: other steps of the boot start units at the same moment.
        host.loaded.update({unit: _unit_files(host, unit) for unit in tuple(host.active)})
    if verb in ("start", "restart") or (verb == "enable" and "--now" in args):
        host.active.update(units)
        host.loaded.update({unit: _unit_files(host, unit) for unit in units if unit not in host.loaded})
    if verb == "enable":
        host.enabled.update(units)
    if verb == "disable":
        host.enabled.difference_update(units)
    if verb == "stop" or (verb == "disable" and "--now" in args):
        host.active.difference_update(units)
    return Result(0)


def _shown(host: FakeHost, unit: str) -> list[str]:
    """systemd knows the files of a unit as they were when it started or at the last daemon-reload."""
    stale = unit in host.active and host.loaded.setdefault(unit, {}) != _unit_files(host, unit)
    return [
        f"ActiveState={'active' if unit in host.active else 'inactive'}",
        f"UnitFileState={'enabled' if unit in host.enabled else 'disabled'}",
        f"NeedDaemonReload={'yes' if stale else 'no'}",
    ]


def _unit_files(host: FakeHost, unit: str) -> dict[str, str]:
    folder, name = host.path("/etc/systemd/system"), unit if "." in unit else f"{unit}.service"
    files = [folder / name, *sorted((folder / f"{name}.d").glob("*.conf"))]
    return {path.name: path.read_text() for path in files if path.exists()}


def _aws(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    assert args[args.index("--region") + 1] == "us-west-2", args
    if args[1] == "fsx":
        return Result(0, json.dumps({"FileSystems": host.world.file_systems}))
    if args[1] == "s3":
        found = host.world.objects.get(args[-2])
        if found is None:
            return Result(
                1, "", "fatal error: An error occurred (404) when calling the HeadObject operation: Not Found"
            )
        if args[-1] == "-":
            return Result(0, found)
        Path(args[-1]).write_text(found)
        return Result(0)
    name = args[args.index("--name") + 1]
    if name in host.world.parameters:
        return Result(0, json.dumps({"Parameter": {"Value": host.world.parameters[name]}}))
    return Result(254, "", "An error occurred (ParameterNotFound) when calling the GetParameter operation: ")


def _mount(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    source, target = args[-2], host.path(args[-1])
    if args[2] in ("lustre", "nfs"):
        target.rmdir()
        target.symlink_to(host.world.shared)
    add_mount(host, source, args[-1], args[2])
    return Result(0)


def add_mount(host: FakeHost, source: str, target: str, kind: str) -> None:
    """A line at the end of the kernel's table, in one write: steps that run beside each other read it."""
    with host.path("/proc/self/mounts").open("a") as table:
        table.write(f"{source} {target} {kind} rw 0 0\n")


def _ssh_keygen(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    if "-f" in args:
        path = Path(args[args.index("-f") + 1])
        comment = args[args.index("-C") + 1]
        user = comment.split()[-1]
        path.write_text(f"PRIVATE {user} {host.hostname()}\n")
        path.chmod(0o600)
        path.with_name(path.name + ".pub").write_text(f"ssh-ed25519 CLUSTER-{user}-{host.hostname()} {comment}\n")
        return Result(0)
    assert tuple(args[1:]) == ("-A",), args
    (host.path("/etc/ssh") / "ssh_host_ed25519_key.pub").write_text(f"ssh-ed25519 HOSTKEY{host.address} made\n")
    return Result(0)


def _scontrol(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    if args[1] == "ping":
        up = host.world.controller_up and (host.address != "10.1.0.10" or "slurmctld" in host.active)
        return Result(0, "Slurmctld(primary) at ip-10-1-0-10 is UP\n") if up else Result(1, "", "is DOWN")
    if args[1] == "show":
        up = "slurmd" in host.active
        return Result(0, f"NodeName={args[3]} State={'IDLE' if up else 'UNKNOWN'} CPUs=8\n")
    return Result(0)


def _neuron_ls(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    row = lookup(host.world.worker_type)
    if not row.neuron_cores:
        return Result(1, "", "no neuron device found")
    each = row.neuron_cores // row.accelerators
    return Result(0, json.dumps([{"neuron_device": i, "nc_count": each} for i in range(row.accelerators)]))


def _yes(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    return Result(0, "credential")


def _unmunge(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    """munge(1) gives a credential a line, and this one has opened nothing else."""
    return Result(0) if stdin == CREDENTIAL else Result(2, "", "unmunge: Error: No credential specified")


def _yes_to(*words: str) -> Command:
    """A command that knows these options alone, besides what it is about."""

    def answer(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        assert tuple(args[1 : len(words) + 1]) == words, args
        return Result(0, "credential")

    return answer


COMMANDS: dict[str, Command] = {
    "systemctl": _systemctl,
    "aws": _aws,
    "mount": _mount,
    "ssh-keygen": _ssh_keygen,
    "scontrol": _scontrol,
    "neuron-ls": _neuron_ls,
    "sinfo": _yes,
    "journalctl": _yes,
    "docker": _yes,
    "chown": _yes,
    "cp": _yes,
    "ssh": _yes,
    "munge": lambda host, args, stdin: Result(0, CREDENTIAL),
    "unmunge": _unmunge,
    "ip": lambda host, args, stdin: Result(2, "", "RTNETLINK answers: Permission denied"),
    "chronyc": _yes,
    "chronyd": _yes,
    "mdadm": _mdadm,
    "visudo": _yes_to("-c", "-f"),
    "scancel": _yes,
    "pkill": lambda host, args, stdin: Result(1),
    "blkid": lambda host, args, stdin: Result(2),
    "lsblk": lambda host, args, stdin: Result(0, "Amazon Elastic Block Store\n"),
    "mkfs.ext4": _yes,
    "fi_info": lambda host, args, stdin: Result(61, "", "fi_getinfo: -61 (No data available)"),
    "python": lambda host, args, stdin: Result(1, "", "no libefa"),
    "python3": lambda host, args, stdin: Result(1, "", "no libefa"),
    "python3.11": lambda host, args, stdin: Result(1, "", "no libefa"),
}
