"""Many real slurmd in one host, each with its own name, address and folders, as Slurm's own large tests have them."""

import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rehearsal.nodes import agent
from rehearsal.nodes.cluster import Cluster
from rehearsal.nodes.hosts import Host
from rehearsal.nodes.network import INTERFACE

# Each daemon listens on its node's address only. Slurm refuses more than 10,000 jobs, running ones included, unless set
# otherwise (slurm.conf(5), MaxJobCount). The rest is for a thousand prologs, epilogs and step daemons on a few cores:
# their answers take longer than over a network, and a thousand health checks every five minutes would keep a core busy.
OWN_LINES = """CommunicationParameters=NoInAddrAny
MaxJobCount=20000
MessageTimeout=100
UnkillableStepTimeout=600
SlurmdTimeout=600
HealthCheckInterval=3600
"""
# What a node has for itself: its spool, and what the prolog and the health check remember.
_START = r"""
cd /; mkdir -p /run/many /run/slurm /run/hyperpod /run/hyperpod-health; : >> /etc/hyperpod/prolog.lock
while read -r name; do
  unshare --uts --mount sh -c '
    hostname "$1"
    for own in /var/spool/slurmd /run/slurm /run/hyperpod /run/hyperpod-health; do
      mount -t tmpfs own "$own" || exit
    done
    : > /run/slurm/prolog.lock; mount --bind /run/slurm/prolog.lock /etc/hyperpod/prolog.lock
    exec /opt/slurm/sbin/slurmd $OPTIONS > "/run/many/$1" 2>&1' start "$name" < /dev/null &
done < /run/nodes
wait
"""


@dataclass(frozen=True)
class Many:
    """A controller whose scripts have run, and the host of a worker whose scripts have run and of ``names``."""

    head: Host
    host: Host
    names: tuple[str, ...]
    scripts_seconds: float
    options: str

    def start(self) -> subprocess.Popen[str]:
        """Start a slurmd for each name."""
        return self.host.start(["bash", "-c", _START], environment={"OPTIONS": self.options})


def boot(cluster: Cluster, nodes: int) -> Many:
    """Run the scripts of the controller and of one worker, told of all nodes, and stop that worker's slurmd."""
    head, host = cluster.controller, cluster.workers[0]
    others = [_named(cluster, host, number) for number in range(2, nodes + 1)]
    with _told_of(cluster, others):
        cluster.start_hosts()
        names = "".join(f"{one.address} {one.hostname}\n" for one in (head, host, *others))
        for one in (head, host):
            one.write("/etc/hosts", f"127.0.0.1 localhost\n{names}")
        # A newer Debian's client, which came with a newer Slurm, looks for the database's socket there.
        head.run("ln -s mysqld /run/mariadbd")
        seconds = cluster.boot()
    options = host.run("ps -C slurmd -o args=").stdout.partition("slurmd")[2].strip()
    host.run(["systemctl", "stop", "slurmd"])
    cluster.sandbox.ip([f"addr add {one.address}/32 dev {INTERFACE}" for one in others], of=host.pid)
    # Else the controller's kernel has a neighbour for each, and the machine's keeps 1,024 at most (arp(7), gc_thresh3).
    cluster.sandbox.ip([f"route add {one.address}/32 via {host.address}" for one in others], of=head.pid)
    host.write("/run/nodes", "".join(f"{one.hostname}\n" for one in (host, *others)))
    return Many(head, host, tuple(one.hostname for one in (host, *others)), seconds, options)


def _named(cluster: Cluster, like: Host, number: int) -> Host:
    """A node that has a name and an address, and no host of its own."""
    return Host(
        name=f"{like.group}-{number}",
        instance_id=f"i-{secrets.token_hex(8)}0",
        group=like.group,
        role=like.role,
        address=cluster.network.next_address(),
        machine=like.machine,
        sandbox=cluster.sandbox,
        network=cluster.network,
    )


@contextmanager
def _told_of(cluster: Cluster, others: Sequence[Host]) -> Iterator[None]:
    """HyperPod's agent lists the other nodes, too."""
    prepare = cluster.agent.prepare

    def with_others(host: Host, hosts: Sequence[Host]) -> None:
        prepare(host, [*hosts, *others])
        if host.role == "controller":
            text = host.read(agent.SLURM_CONF).replace("/run/slurmd.pid", "/run/slurm/slurmd.pid")
            host.write(agent.SLURM_CONF, OWN_LINES + text, owner="slurm")

    cluster.agent.prepare = with_others  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        cluster.agent.prepare = prepare  # type: ignore[method-assign]
