"""A node that is not there: its disk is a folder, its commands are functions, its clock is a number."""

from __future__ import annotations

# ruff: noqa: ARG002 (fakes have the signatures of what they stand for)
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from hyperpod_node.facts import node_record, parameters
from hyperpod_node.facts.identity import read_instances
from hyperpod_node.facts.identity import run as identify
from hyperpod_node.facts.model import CLUSTER_ID_TAG, Group, Instance, Node, NodeRecord, Parameters, Probe
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Host, Reply, Result
from hyperpod_node.host.settings import TIMEOUTS, Settings
from hyperpod_node.people import apply

from components.catalogue.accelerators import lookup
from components.common.names import Names
from components.nodes import provisioning
from tests.lifecycle import words
from tests.lifecycle.fake_commands import COMMANDS, Command
from tests.support import config

LIFECYCLE = Path(__file__).parents[2] / "lifecycle"
CLUSTER_ID = "mine-12345678"
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4M2V1Q3bP8yQ0hCq7rT9p0e1k2l3m4n5o6p7q8r9s0 me"
# An existing VPC, whose address blocks the program does not know, and a file system of home folders in it.
VPC = {
    "vpcId": "vpc-0123456789abcdef0",
    "privateSubnetId": "subnet-0123456789abcdef0",
    "securityGroupIds": ["sg-0123456789abcdef0"],
}
HOME = "fs-0123456789abcdef0"
# A workspace that takes metrics.
REMOTE_WRITE = "https://aps-workspaces.us-west-2.amazonaws.com/workspaces/ws-0123abcd/api/v1/remote_write"
UNITS = ("slurmctld", "slurmd", "munge", "ssh", "chrony")
SLURM_CONF = """ClusterName=mine
SlurmctldHost=ip-10-1-0-10(10.1.0.10)
SlurmctldParameters=enable_configless
NodeName=ip-10-1-0-[12-13] NodeAddr=10.1.0.[12-13] CPUs=8 State=UNKNOWN
PartitionName=dev Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@cache
def facts(worker_type: str, settings: str) -> Parameters:
    """What the program tells nodes of: cluster ``mine`` with two workers, keys laid over it."""
    given = json.loads(settings)
    cluster = {
        "clusterName": "mine",
        "accelerator": lookup(worker_type).accelerator or "gpu",
        "workers": [{"name": "workers", "instanceType": worker_type, "count": 2}],
        "login": {} if given.get("orchestrator") == "eks" else {"instanceType": "ml.m5.large"},
        # UltraServers are only in a VPC of one's own (components/config/checks.py).
        **({"region": "us-east-1", "availabilityZoneId": "", "network": VPC} if "ml.p6e-" in worker_type else {}),
    }
    found = config(**{**cluster, **given})
    return provisioning.facts(found, Names(cluster="mine", region="us-west-2", digest=CLUSTER_ID[-8:]))


def group(name: str, instance_type: str) -> Group:
    """A worker group of it, or the controller's where the type has no accelerator."""
    worker = bool(lookup(instance_type).accelerator)
    given = {} if worker else {"controllerInstanceType": instance_type}
    role = "worker" if worker else "controller"
    groups = facts(instance_type if worker else "ml.p5.48xlarge", json.dumps(given)).instance_groups
    (found,) = (one for one in groups if one.role == role)
    return replace(found, name=name)


def record(*groups: Group, transport: str = "tcp", **changes: Any) -> NodeRecord:
    """The record of a node of the first of these groups, by default of the stack's, with other parameters."""
    known = facts("ml.p5.48xlarge", "{}")
    known = replace(known, instance_groups=groups or known.instance_groups, **changes)
    name = known.instance_groups[0].name
    instance = Instance(name, f"{name}-1", "10.1.0.12", "i-1")
    return NodeRecord(known, instance, transport, Probe(0, None, "not looked for"))


@dataclass
class World:
    """What the nodes of a cluster share: the account, the file system's content, and whether slurmctld is up."""

    folder: Path
    worker_type: str = "ml.p5.48xlarge"
    file_systems: list[dict[str, Any]] = field(default_factory=list)
    parameters: dict[str, str] = field(default_factory=dict)
    controller_up: bool = True
    settings: dict[str, Any] = field(default_factory=dict)
    remote_write_url: str | None = REMOTE_WRITE
    owners: dict[str, str] = field(default_factory=dict)
    # Of folders by their number, which stays when one is renamed.
    folders: dict[int, str] = field(default_factory=dict)
    objects: dict[str, str] = field(default_factory=dict)
    active: dict[str, set[str]] = field(default_factory=dict)
    enabled: dict[str, set[str]] = field(default_factory=dict)
    loaded: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.file_systems = self.file_systems or [file_system("fs-0a")]
        self.shared.mkdir(parents=True, exist_ok=True)
        source = self.folder / "source"
        if not source.exists():
            source.mkdir(parents=True)
            for path in LIFECYCLE.iterdir():
                (source / path.name).symlink_to(path)
        self.source = source
        self.render()

    @property
    def shared(self) -> Path:
        return self.folder / "lustre"

    def render(self, **settings: Any) -> None:
        """Write hyperpod_parameters.json, with these keys of the configuration besides the world's own."""
        key = {"sshPublicKey": PUBLIC_KEY} if self.parameters else {}
        known = facts(self.worker_type, json.dumps({**key, **self.settings, **settings}))
        known = replace(known, remote_write_url=self.remote_write_url)
        (self.source / parameters.FILE_NAME).write_text(parameters.render(known))

    def ship(self, users: Sequence[Mapping[str, Any]], **settings: Any) -> str:
        """Write hyperpod_people.json with these people, and return its text."""
        names = Names(cluster="mine", region="us-west-2", digest=CLUSTER_ID[-8:])
        text = provisioning.people_text(config(users=list(users), **{**self.settings, **settings}), names)
        (self.source / apply.FILE_NAME).write_text(text)
        return text

    def node(self, role: str = "worker", **options: Any) -> FakeHost:
        """A node of the cluster."""
        address = {"controller": "10.1.0.10", "login": "10.1.0.11", "worker": "10.1.0.12"}[role]
        return FakeHost(self, options.pop("address", address), **options)


def file_system(name: str, state: str = "AVAILABLE", tag: str = CLUSTER_ID) -> dict[str, Any]:
    """An entry of DescribeFileSystems."""
    return {
        "FileSystemId": name,
        "FileSystemType": "LUSTRE",
        "Lifecycle": state,
        "DNSName": f"{name}.fsx.us-west-2.amazonaws.com",
        "LustreConfiguration": {"MountName": "abcdefgh"},
        "Tags": [{"Key": "Name", "Value": "mine"}, {"Key": CLUSTER_ID_TAG, "Value": tag}],
    }


class Killed(Exception):
    """The process was killed here."""


class FakeHost(Host):
    """A host whose every effect stays in its folder. ``fail[command]`` makes a command fail."""

    def __init__(self, world: World, address: str, real_time: bool = False, patience: float | None = None) -> None:
        root = world.folder / f"node-{address}"
        timeouts = {name: patience or (10.0 if real_time else seconds) for name, seconds in TIMEOUTS.items()}
        super().__init__(Settings(root=root, source=world.source, timeouts=timeouts))
        self.world, self.address, self.real_time = world, address, real_time
        self.clock, self.skew = 1000.0, 0.0
        # What outlives a run of the scripts.
        self.owners, self.active = world.owners, world.active.setdefault(address, set())
        self.enabled, self.loaded = world.enabled.setdefault(address, set()), world.loaded.setdefault(address, {})
        self.calls: list[tuple[str, ...]] = []
        self.missing: set[str] = set()
        self.fail: dict[str, Result] = {}
        self.imds: Mapping[str, Any] = {"mode": "v2"}
        self.on_sleep: Callable[[], None] = lambda: None
        self.kill_at: int | None = None
        self.operations = 0
        self.lock = threading.Lock()
        self.commands: dict[str, Command] = dict(COMMANDS)
        if not root.exists():
            self._install()

    def _install(self) -> None:
        def put(name: str, text: str = "") -> None:
            path = self.path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

        instances = {"controller": "10.1.0.10", "login": "10.1.0.11", "workers": "10.1.0.12 10.1.0.13"}
        put(
            self.settings.resource_config,
            json.dumps(
                {
                    "ClusterConfig": {"ClusterName": "mine", "ClusterArn": "arn:aws:sagemaker:us-west-2:1:cluster/x"},
                    "InstanceGroups": [
                        {
                            "Name": name,
                            "InstanceType": "any",
                            "Instances": [
                                {
                                    "InstanceName": f"{name}-{number}",
                                    "AgentIpAddress": "172.16.0.1",
                                    "CustomerIpAddress": a,
                                    "InstanceId": instance_id(a),
                                }
                                for number, a in enumerate(addresses.split(), 1)
                            ],
                        }
                        for name, addresses in instances.items()
                    ],
                }
            ),
        )
        put("/proc/net/fib_trie", f"  |-- 127.0.0.1\n     /32 host LOCAL\n  |-- {self.address}\n     /32 host LOCAL\n")
        put(
            "/proc/net/route",
            "Iface Destination Gateway Flags RefCnt Use Metric Mask\nens6 00000000 0101000A 0003 0 0 0 00000000 0\n",
        )
        put("/proc/self/mounts", "overlay / overlay rw 0 0\n")
        put("/proc/sys/net/core/rmem_max", "212992\n")
        put("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n")
        put("/etc/fstab", "# <source>\nLABEL=root / ext4 defaults 0 1\n")
        put("/etc/environment", 'PATH="/usr/bin:/bin"\n')
        put("/etc/ssh/ssh_config", "Include /etc/ssh/ssh_config.d/*.conf\n")
        put("/etc/ssh/sshd_config", "Include /etc/ssh/sshd_config.d/*.conf\n")
        put("/etc/ssh/ssh_host_ed25519_key.pub", f"ssh-ed25519 HOSTKEY{self.address} root@x\n")
        put("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\nubuntu:x:1000:1000:Ubuntu:/home/ubuntu:/bin/bash\n")
        put("/etc/group", "root:x:0:\nubuntu:x:1000:\n")
        put("/etc/shadow", "root:*:19000:0:99999:7:::\nubuntu:!:19000:0:99999:7:::\n")
        put("/etc/gshadow", "root:*::\nubuntu:!::\n")
        for name, mode in {"passwd": 0o644, "group": 0o644, "shadow": 0o640, "gshadow": 0o640}.items():
            self.path(f"/etc/{name}").chmod(mode)
        put("/etc/skel/.bashrc", "# skeleton\n")
        put("/root/.bashrc")
        put("/home/ubuntu/.bashrc")
        for unit in UNITS:
            put(f"/lib/systemd/system/{unit}.service", f"[Service]\nExecStart=/usr/sbin/{unit} -D -s $OPTIONS\n")
        put("/opt/aws/amazon-cloudwatch-agent/bin/config-translator")
        put("/etc/munge/munge.key", "k" * 128)
        self.owners[os.path.realpath(self.path("/etc/munge/munge.key"))] = "munge"
        self.path("/etc/munge/munge.key").chmod(0o400)
        if self.address == "10.1.0.10":
            put("/opt/slurm/etc/slurm.conf", SLURM_CONF)
        if self.address.startswith("10.1.0.1") and self.address not in ("10.1.0.10", "10.1.0.11"):
            self._devices(put)

    def _devices(self, put: Callable[..., None]) -> None:
        row = lookup(self.world.worker_type)
        if row.efa == "yes":
            put("/sys/devices/efa/device/vendor", "0x1d0f\n")
            put("/sys/devices/efa/device/device", "0xefa2\n" if row.rdma_read else "0xefa0\n")
            self.path("/sys/class/infiniband").mkdir(parents=True)
        # Links, as in sysfs. All lead to one device: the files of 32 would be most of what a test takes.
        for number in range(row.efa_interfaces if row.efa == "yes" else 0):
            self.path(f"/sys/class/infiniband/rdmap{number}s27").symlink_to(self.path("/sys/devices/efa"))
        stem = {"gpu": "nvidia", "trainium": "neuron"}.get(row.accelerator, "none")
        for number in range(row.accelerators):
            put(f"/dev/{stem}{number}")
        if row.neuron_cores:
            put("/opt/aws/neuron/bin/neuron-monitor-prometheus.py")

    def node(self, *, identified: bool = True) -> Node:
        """The steps' view of this host, with the first two steps done."""
        found = Node(self)
        if identified:
            parameters.run(found)
            identify(found)
        return found

    def remember(self, instance_id: str = "", **changes: Any) -> NodeRecord:
        """Write node.json as step ``environment`` does, with other parameters, and return it."""
        found = self.node(identified=False)
        parameters.run(found)
        listed = [one for one in read_instances(self) if one.address == self.address]
        instance = listed[0] if listed else Instance("controller", "controller-1", self.address, "i-1")
        if instance_id:
            instance = replace(instance, instance_id=instance_id)
        known = NodeRecord(replace(found.parameters, **changes), instance, "tcp", Probe(0, None, "not looked for"))
        node_record.write(self, known)
        return known

    # What the steps reach through Host

    def tick(self) -> None:
        """One operation; the process may die before it."""
        with self.lock:
            self.operations += 1
            if self.kill_at is not None and self.operations >= self.kill_at:
                raise Killed

    def now(self) -> float:
        return super().now() if self.real_time else self.clock

    def wall(self) -> float:
        return 1_790_000_000.0 + self.skew + (0 if self.real_time else self.clock)

    def sleep(self, seconds: float) -> None:
        if self.real_time:
            super().sleep(seconds)
            return
        self.clock += seconds
        self.on_sleep()

    def hostname(self) -> str:
        return "ip-" + self.address.replace(".", "-")

    def which(self, command: str) -> str | None:
        name = Path(command).name
        return f"/usr/bin/{name}" if name in self.commands and name not in self.missing else None

    def execute(
        self, args: tuple[str, ...], timeout: float, stdin: str | Path | None, env: Mapping[str, str]
    ) -> Result:
        self.tick()
        name = Path(args[0]).name
        words.check(self, args, timeout, env)
        with self.lock:
            self.calls.append(args)
        if name in self.fail:
            return self.fail[name]
        if name not in self.commands or name in self.missing:
            raise StepError(f"command not found: {args[0]}")
        return self.commands[name](self, args, stdin.read_text() if isinstance(stdin, Path) else stdin)

    def write_bytes(self, name: str, data: bytes, mode: int = 0o644, owner: str | None = None) -> bool:
        self.tick()
        return super().write_bytes(name, data, mode, owner)

    def folder(self, name: str, mode: int = 0o755, owner: str | None = None) -> None:
        self.tick()
        super().folder(name, mode, owner)

    def link(self, name: str, target: str) -> None:
        self.tick()
        super().link(name, target)

    def owner(self, name: str) -> str:
        real = Path(os.path.realpath(self.path(name)))
        folder = self.world.folders.get(real.stat().st_ino) if real.is_dir() else None
        return self.owners.get(str(real)) or folder or "root"

    def chown(self, path: str, owner: str) -> None:
        real = os.path.realpath(path)
        self.owners[real] = owner
        if Path(real).is_dir():
            self.world.folders[Path(real).stat().st_ino] = owner
        # A file that is being replaced gets its name a moment later.
        name = Path(real).name
        if name.startswith(".") and name.endswith(".new"):
            final = name[1:].rsplit(f".{self.hostname()}.new", 1)[0]
            self.owners[str(Path(real).with_name(final))] = owner

    def home(self, user: str) -> str | None:
        found = {"root": "/root", "ubuntu": "/home/ubuntu", "munge": "/var/lib/munge"}.get(user)
        lines = (line.split(":") for line in (self.read("/etc/passwd") or "").splitlines())
        return found or next((row[5] for row in lines if row[0] == user), None)

    def mtu(self, interface: str) -> int | None:
        return 9001

    def answers(self, address: str, port: int, timeout: float = 1.0) -> bool:
        return self.world.controller_up

    def resolve(self, name: str) -> list[str]:
        return [name] if name[0].isdigit() else self.world.names.get(name, [])

    def http(self, method: str, url: str, headers: Mapping[str, str], timeout: float) -> Reply:
        mode = self.imds["mode"]
        if mode == "down":
            self.clock += timeout
            raise OSError("timed out")
        if mode == "flaky":
            self.imds = {"mode": "v2"}
            raise OSError("connection refused")
        if method == "PUT":
            return Reply(403) if mode == "v1" else Reply(200, "token", self._date())
        if mode == "v2" and headers.get("X-aws-ec2-metadata-token") != "token":
            return Reply(401)
        own = {"instance-id": instance_id(self.address), "instance-type": ""}
        name = url.rsplit("/", 1)[-1]
        return Reply(200, self.imds.get(name.replace("-", "_"), own[name]), self._date())

    def _date(self) -> str:
        from email.utils import formatdate

        return formatdate(self.wall() - self.skew, usegmt=True)

    # What tests ask

    def text(self, name: str) -> str:
        """A file's text; it must be there."""
        found = self.read(name)
        assert found is not None, f"{name} is missing"
        return found

    def tree(self) -> dict[str, tuple[int, str]]:
        """Every file of the node with its mode, without logs and what a kernel makes; the shared files too."""
        found = {}
        for top, prefix in ((self.settings.root, ""), (self.world.shared, "/fsx")):
            for folder, folders, names in os.walk(top):
                folders[:] = [name for name in folders if name not in ("log", "proc", "sys", "dev", "nodes")]
                for name in names:
                    path = Path(folder) / name
                    if path.is_symlink():
                        found[prefix + str(path.relative_to(top))] = (0, str(path.readlink()))
                    else:
                        mode = path.stat().st_mode & 0o777
                        found[prefix + str(path.relative_to(top))] = (mode, path.read_text(errors="replace"))
        return found

    def ran(self, *words: str) -> bool:
        """A command that begins so was run."""
        return any(call[: len(words)] == words for call in self.calls)


def instance_id(address: str) -> str:
    """The instance id of an address."""
    return "i-" + address.replace(".", "").rjust(17, "0")
