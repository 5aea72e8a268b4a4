"""The nodes of a stack as hosts, which boot in parallel, join, get lost and replaced, and reboot."""

from __future__ import annotations

import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from . import imds, slurm_packages
from .agent import Agent, Lifecycle
from .aws_cli import Caller
from .aws_endpoint import Endpoint
from .eks_image import add_eks
from .hosts import Host
from .http_service import Service
from .image import build_image, let_sshd_load_slurm, snapshot_sysctl
from .image_setup import Image, Order
from .machine import Machine
from .network import Network
from .sandbox import Sandbox
from .stack import Stack

# The time limit for a lifecycle script here; on HyperPod it is an hour.
SCRIPT_SECONDS = 180.0
# Seconds of silence after which a node counts as lost. On AWS it is 10 s; a network on one machine needs less.
_HERE = {"HYPERPOD_LOST_AFTER": "2"}
OnTick = Callable[["Cluster"], None]


@dataclass
class Metadata:
    """How the hosts' metadata services behave. ``only``: the name of the one host concerned."""

    mode: imds.Mode = "v2"
    delay: float = 0.0
    skew: float = 0.0
    only: str = ""


@dataclass
class Options:
    """What a scenario changes. ``efa``: whether instances have EFA if the catalogue says "maybe".

    ``continuous``: nodes come when the controller is up, and Slurm hears of them when their scripts have ended. Else
    all boot at once and Slurm knows them before, so that each node's own script tells how it fares.
    """

    workers: int | None = None
    efa: bool | None = None
    controllers: int | None = None
    continuous: bool = False
    # Groups that are added later.
    absent: frozenset[str] = frozenset()
    metadata: Metadata = field(default_factory=Metadata)
    files: Mapping[str, bytes] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    no_munge_key: bool = False
    slurm: str = slurm_packages.DEFAULT
    # Where the image sets Slurm up: whether it is done when the scripts start.
    order: Order = "after"
    # The workers of a switch on the map that HyperPod's agent makes; 0 for the empty map that users have reported.
    leaf: int = 0


class Cluster:
    """All hosts of one run. Use as a context manager, which leaves nothing behind."""

    def __init__(self, stack: Stack, options: Options | None = None) -> None:
        self.stack, self.options = stack, options or Options()
        self.sandbox = Sandbox()
        self.network = Network(self.sandbox, stack.cidr, stack.config.region.name)
        self.endpoint = Endpoint(stack.account)
        self.agent = Agent(stack, b"") if self.options.no_munge_key else Agent(stack)
        self.agent.leaf = self.options.leaf
        self.image = Image(stack, self.options.order) if stack.config.settings.slurm.by_image else None
        self.hosts: list[Host] = []
        self.scripts: dict[str, Lifecycle] = {}
        # The image sets up each instance once, however often its script runs.
        self._configured: set[str] = set()
        self._metadata: dict[str, list[Service]] = {}
        # How often each instance asked for each path of its metadata.
        self.metadata_calls: dict[str, Counter[str]] = {}
        self._numbers: dict[str, int] = {}
        self._files: Mapping[str, bytes] = {}

    def __enter__(self) -> Cluster:
        self.sandbox.__enter__()
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Power everything off. Never fails halfway: the sandbox removes the rest when it closes."""
        for host in self.hosts:
            self._close_metadata(host)
        self.endpoint.close()
        for host in self.hosts:
            host.power_off()
        self.sandbox.__exit__()

    def _build(self) -> None:
        self.network.build()
        self.endpoint.open(self.sandbox.pid, self.network.endpoint)
        build_image(
            self.sandbox.path("image"),
            self.network,
            self.sandbox.environment,
            slurm_packages.folder(self.options.slurm),
        )
        if self.stack.config.settings.orchestrator == "eks":
            add_eks(self.sandbox.path("image"))
        if self.stack.config.settings.security.ssh_only_with_job:
            let_sshd_load_slurm(self.sandbox.path("image"))
        snapshot_sysctl(self.sandbox.path("sysctl"))
        shutil.copy(Path(__file__).parent / "stubs/boot.sh", self.sandbox.path("boot.sh"))
        for system in self.endpoint.file_systems:
            self.sandbox.share(system.id, system.source)
        self._files = self.options.files if self.options.files is not None else self.stack.lifecycle_files()
        for group in self.stack.config.instance_groups:
            count = {"worker": self.options.workers, "controller": self.options.controllers}.get(group.role)
            if group.name in self.options.absent:
                count = 0
            for _ in range(group.count if count is None else count):
                self.hosts.append(self._new_host(group.name))

    def _new_host(self, group_name: str) -> Host:
        group = next(one for one in self.stack.config.instance_groups if one.name == group_name)
        self._numbers[group_name] = number = self._numbers.get(group_name, 0) + 1
        efa = self.options.efa if group.type.efa == "maybe" else None
        host = Host(
            name=f"{group_name}-{number}",
            instance_id=f"i-{secrets.token_hex(8)}0",
            group=group_name,
            role=group.role,
            address=self.network.next_address(),
            machine=Machine(group.types[0], efa),
            sandbox=self.sandbox,
            network=self.network,
        )
        host.make()
        return host

    def host(self, name: str) -> Host:
        """A host by its name, such as ``workers-1``."""
        return next(host for host in self.hosts if host.name == name)

    def of_role(self, role: str) -> list[Host]:
        """Hosts of a role."""
        return [host for host in self.hosts if host.role == role]

    @property
    def controller(self) -> Host:
        """The first controller."""
        return self.of_role("controller")[0]

    @property
    def workers(self) -> list[Host]:
        """All workers."""
        return self.of_role("worker")

    @property
    def files(self) -> dict[str, bytes]:
        """The bucket's files, by their paths below the source URI."""
        return dict(self._files)

    def shared(self, inside: str) -> Path:
        """Where this process reaches a file of the stack's file system, given its path below the mount point."""
        return self.sandbox.path(f"lustre/{self.stack.file_system}") / inside

    def power_on(self, host: Host) -> None:
        """Boot a host up to the point where HyperPod's agent takes over."""
        host.power_on()
        config, account = self.stack.config, self.stack.account
        role = self.stack.groups[host.group]["executionRole"]
        instance = imds.Instance(
            instance_id=host.instance_id,
            instance_type=host.machine.kind.name,
            address=host.address,
            hostname=host.hostname,
            region=config.region.name,
            zone=self.stack.zone,
            zone_id=self.stack.zone_id,
            account=account.account_id,
            mac=self.network.hardware_address(host.address),
            role=role.rsplit("/", 1)[-1],
        )
        self.metadata_calls[host.instance_id] = instance.asked
        self.endpoint.callers[instance.key] = Caller(host.name, role)
        asked = self.options.metadata
        metadata = asked if asked.only in ("", host.name) else Metadata()
        self._metadata[host.instance_id] = imds.serve(
            host.pid, instance, mode=metadata.mode, delay=metadata.delay, skew=metadata.skew
        )
        if not host.read("/etc/ssh/ssh_host_ed25519_key"):
            host.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/etc/ssh/ssh_host_ed25519_key"])
        host.start_services()

    def power_off(self, host: Host) -> None:
        """Cut a host's power."""
        host.power_off()
        self._close_metadata(host)

    def _close_metadata(self, host: Host) -> None:
        for service in self._metadata.pop(host.instance_id, ()):
            service.close()

    def start_hosts(self) -> None:
        """Power on all hosts and let the agent prepare those that are the first. No lifecycle script runs yet."""
        # Started from this thread, since a host dies with the thread that started it.
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self.power_on, self.hosts))
        for host in self._first:
            self.agent.prepare(host, self._first)

    @property
    def _first(self) -> list[Host]:
        return self.of_role("controller") if self.options.continuous else self.hosts

    def script(
        self, host: Host, environment: Mapping[str, str] | None = None, files: Mapping[str, bytes] | None = None
    ) -> Lifecycle:
        """Start a host's lifecycle script. ``files``: what the host gets of the bucket, by default everything."""
        self.set_up(host)
        variables = {**_HERE, **self.options.environment, **(environment or {})}
        run = Lifecycle(host, self._files if files is None else files, variables)
        self.scripts[host.name] = run
        run.start()
        return run

    def boot(self, on_tick: OnTick = lambda cluster: None) -> float:
        """Run all lifecycle scripts and wait for them. Returns the seconds that this took.

        Where Slurm knows the nodes before, all workers are idle then: their scripts wait for it.
        """
        began = time.monotonic()
        for host in self._first:
            self.script(host)
        if self.finish(on_tick) and self.options.continuous:
            self._follow(on_tick)
        return max((run.ended for run in self.scripts.values()), default=began) - began

    def _follow(self, on_tick: OnTick) -> None:
        """Boot the rest once the controller is up (SageMaker Developer Guide, "Continuous provisioning for enhanced
        cluster operations with Slurm"), and then have Slurm hear of them (assumption slurm-names-last)."""
        self.agent.tell(self.hosts)
        for host in self.hosts:
            if host.role != "controller":
                self.agent.prepare(host, self.hosts)
                self.script(host)
        self.finish(on_tick)
        self.agent.announce(self.hosts, whole=False)

    def set_up(self, host: Host) -> None:
        """Have the image do its part, once on each instance, where it sets Slurm up."""
        if self.image and host.instance_id not in self._configured:
            self._configured.add(host.instance_id)
            self.image.configure(host, [one.address for one in self.of_role("controller")])

    def finish(self, on_tick: OnTick = lambda cluster: None) -> bool:
        """Wait for the running scripts. Returns whether all succeeded."""
        deadline = time.monotonic() + SCRIPT_SECONDS
        while any(run.code is None for run in self.scripts.values()):
            if time.monotonic() > deadline:
                for run in self.scripts.values():
                    run.kill()
                break
            on_tick(self)
            time.sleep(0.05)
        if self.image:
            self.image.done()
        on_tick(self)
        return all(run.code == 0 for run in self.scripts.values())

    def fresh_host(self, gone: Host) -> Host:
        """Boot a replacement instance with a new address and disk, up to where HyperPod's agent takes over."""
        self.power_off(gone)
        fresh = self._new_host(gone.group)
        fresh.name = gone.name
        self.power_on(fresh)
        return fresh

    def take_place(self, gone: Host, fresh: Host) -> None:
        """Replace a lost host with a fresh one and tell all nodes, like HyperPod."""
        self.hosts[self.hosts.index(gone)] = fresh
        self.agent.prepare(fresh, self.hosts)
        self.agent.replace_node(gone, fresh, self.hosts)

    def join(self, gone: Host, fresh: Host) -> None:
        """Like ``take_place``, but the fresh host's script is already running."""
        self.hosts[self.hosts.index(gone)] = fresh
        self.agent.prepare(fresh, self.hosts)
        self.script(fresh)
        self.agent.replace_node(gone, fresh, self.hosts)

    def add_hosts(self, group: str, count: int) -> list[Host]:
        """Add nodes to a group, up to where their scripts start. Every node is told; slurm.conf does not change yet."""
        fresh = [self._new_host(group) for _ in range(count)]
        for host in fresh:
            self.power_on(host)
        self.hosts += fresh
        self.agent.tell(self.hosts)
        for host in fresh:
            self.agent.prepare(host, self.hosts)
        return fresh

    def remove(self, gone: Host) -> None:
        """Terminate a node, as BatchDeleteClusterNodes does, and tell the others."""
        self.power_off(gone)
        self.hosts.remove(gone)
        self.agent.forget(gone, self.hosts)

    def shut_down(self, host: Host) -> None:
        """Shut down in an orderly way."""
        host.shut_down()
        self.power_off(host)

    def reboot(self, host: Host) -> None:
        """Shut down in an orderly way and boot from the same disk. HyperPod runs no lifecycle script after a reboot."""
        self.shut_down(host)
        self.power_on(host)
