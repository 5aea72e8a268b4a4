"""``hyperpod rotate-munge`` on a real MUNGE and Slurm: the verb itself, with hosts instead of Session Manager."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from operations.cluster import munge_key, sessions
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from operations.target import Target
from rehearsal.nodes.checks import all_idle, output
from rehearsal.nodes.cluster import Cluster
from rehearsal.nodes.growth import holds, until
from rehearsal.nodes.hosts import Host

KEY = "/etc/munge/munge.key"


def rotate(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, unreachable: str = "") -> munge_key.Rotated:
    """Run the verb on all hosts that are on, and show what holds for every rotation."""
    nodes = {host.name: _node(host) for host in cluster.hosts if host.running}

    def run_remote(_: object, node: Node, command: str, timeout: float) -> Remote:
        if node.name == unreachable:
            return Remote(code=1, output="no")
        done = cluster.host(node.name).run(command.removeprefix("sudo -n "), timeout=timeout)
        assert key_of(cluster.controller).hex() not in done.stdout + done.stderr
        return Remote(code=done.returncode, output=done.stdout + done.stderr)

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    target = cast(Target, SimpleNamespace(stack="dev"))
    return munge_key.rotate(target, list(nodes.values()), [], lambda _: None)


def key_of(host: Host) -> bytes:
    """The key on a host's disk."""
    return host.path(KEY).read_bytes()


def while_jobs_run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job runs on, another waits and runs after it; one node is off, and joins by itself when it is on again."""
    controller, (off, *workers) = cluster.controller, cluster.workers
    old = key_of(controller)
    options = f"--parsable --exclusive -w {workers[0].hostname} -o /fsx/rotation-%j"
    first = output(controller, f"sbatch {options} --wrap 'until test -e /fsx/rotated; do sleep .2; done; echo done'")
    waiting = output(controller, f"sbatch {options} --wrap 'srun hostname'").strip()
    until("the job runs", lambda: output(controller, f"squeue -h -o %T -j {first.strip()}") == "RUNNING\n")
    sealed = output(controller, "munge -n")
    cluster.shut_down(off)
    with pytest.raises(Exception, match=f"no key was changed: {workers[-1].name}: .*: no"):
        rotate(cluster, monkeypatch, unreachable=workers[-1].name)
    assert key_of(controller) == old, "a node that cannot be asked is left behind"
    done = rotate(cluster, monkeypatch)
    assert done.good, done
    new = key_of(controller)
    assert {key_of(host) for host in cluster.hosts if host.running} == {new} != {old}
    for host in (controller, workers[0]):
        refused = host.run(f"unmunge <<< '{sealed}'")
        assert "Invalid credential" in refused.stdout + refused.stderr
        assert not host.run(f"journalctl -u hyperpod-munge-key | grep -c {new.hex()[:32]}").stdout.strip("0\n")
    assert output(controller, f"squeue -h -o %T -j {first.strip()}") == "RUNNING\n"
    cluster.shared("rotated").touch()
    log = cluster.shared(f"rotation-{waiting}")
    until("the job that waited runs", lambda: log.exists() and log.read_text() == f"{workers[0].hostname}\n")
    assert cluster.shared(f"rotation-{first.strip()}").read_text() == "done\n"
    cluster.power_on(off)
    until(f"{off.name} joins", lambda: holds(all_idle, cluster))
    assert key_of(off) == new


def _node(host: Host) -> Node:
    blank = Node(name=host.name, group=host.group, role=host.role, instance_id="", instance_type="", status="Running")
    return replace(blank, hostname=host.hostname)
