"""A node of EKS that is not there: its data volume, its instance store, and what the scripts run on them."""

import shutil
from collections.abc import Sequence
from typing import Any

from hyperpod_node.host.host import Result

from tests.lifecycle.fake_commands import COMMANDS, add_mount
from tests.lifecycle.rig import FakeHost, World

CONTAINERD, KUBELET = "/var/lib/containerd", "/var/lib/kubelet"


def eks_node(world: World, **options: Any) -> FakeHost:
    """A worker with its data volume, and an image that mounts the instance store; both programs' data on the root."""
    node = world.node("worker", **options)
    mount(node, "/opt/dlami/nvme")
    mount(node, "/opt/sagemaker")
    for folder in (CONTAINERD, KUBELET):
        node.path(folder).mkdir(parents=True)
        (node.path(folder) / "data").write_text(folder)
    node.commands |= {"cp": copy, "rm": _rm, "systemctl": mount_systemctl, "modprobe": lambda h, args, stdin: Result(0)}
    return node


def mount(host: FakeHost, where: str) -> None:
    """Something is mounted there."""
    add_mount(host, "/dev/x", where, "ext4")


def copy(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    """cp --archive of a folder's files."""
    source, target = host.path(args[-2].removesuffix("/.")), host.path(args[-1])
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return Result(0)


def _rm(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    assert tuple(args[1:-1]) == ("--recursive", "--force", "--one-file-system")
    shutil.rmtree(args[-1])
    return Result(0)


def mount_systemctl(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    """systemctl, which mounts what a mount unit says."""
    if args[1:3] == ("enable", "--now"):
        text = host.path(f"/etc/systemd/system/{args[-1]}").read_text()
        where = next(line for line in text.splitlines() if line.startswith("Where="))
        mount(host, where.removeprefix("Where="))
        return Result(0)
    return COMMANDS["systemctl"](host, args, stdin)
