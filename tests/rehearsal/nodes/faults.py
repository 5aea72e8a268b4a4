"""Faults during a boot. Each scenario injects one and knows the right outcome and message.

What the drills of a boot break (rehearsal/drills/boots.py) has no scenario here.
"""

import re
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from hyperpod_node.boot.steps import ACCOUNTING, ACCOUNTS, DATABASE, PEOPLE, SLURM, SSH_JOBS

from rehearsal.checks import CheckFailed, require
from rehearsal.nodes.agent import RESOURCE_CONFIG, SLURM_CONF, Lifecycle
from rehearsal.nodes.cluster import Cluster, Metadata, Options
from rehearsal.nodes.faults import HASTY, file_system, fill
from rehearsal.nodes.hosts import Host
from rehearsal.nodes.imds import Mode
from rehearsal.nodes.outcome import steps_of
from rehearsal.nodes.stack import Stack

# The file of an agent that is still writing it.
PATIENT = {**HASTY, "HYPERPOD_TIMEOUT_RESOURCE_CONFIG": "8"}

Stage = Callable[[Cluster], None]


@dataclass(frozen=True)
class Scenario:
    """``options`` and ``stage`` inject the fault. ``fails``: who must fail, with which last line; others succeed.

    ``says``: text that some script's log must contain. ``check``: what else must be true.
    """

    options: Options = field(default_factory=lambda: Options(workers=1))
    stage: Stage = lambda cluster: None
    fails: dict[str, str] = field(default_factory=dict)
    says: str = ""
    check: Stage = lambda cluster: None


def play(stack: Stack, scenario: Scenario) -> None:
    """Boot under the scenario. Raises CheckFailed if the outcome is wrong."""
    with Cluster(stack, scenario.options) as cluster:
        cluster.start_hosts()
        scenario.stage(cluster)
        cluster.boot()
        for name, run in cluster.scripts.items():
            wanted = scenario.fails.get(name) or scenario.fails.get("*", "")
            if not wanted:
                require(run.code == 0, f"{name} failed: {run.last_line}")
                continue
            require(run.code not in (0, None), f"{name} did not fail")
            require(re.search(wanted, run.last_line), f"{name} says {run.last_line!r}, not {wanted!r}")
        said = "\n".join(line for run in cluster.scripts.values() for line in run.lines)
        require(re.search(scenario.says, said), f"no script says {scenario.says!r}")
        scenario.check(cluster)


def _foreign(cluster: Cluster) -> None:
    """Another team's file system, whose name and cluster id begin with ours; it is listed first."""
    ours = file_system(cluster)
    tags = {key: f"{value}-2" for key, value in ours.tags.items()}
    theirs = replace(ours, id="fs-0foreign", dns_name="fs-0foreign.fsx.example", mount_name="foreign", tags=tags)
    cluster.sandbox.share(theirs.id, f"{theirs.dns_name}@tcp:/{theirs.mount_name}")
    cluster.endpoint.file_systems.insert(0, theirs)


def _mounted_ours(cluster: Cluster) -> None:
    ours = next(one for one in cluster.endpoint.file_systems if one.id != "fs-0foreign")
    for host in cluster.hosts:
        mounts = [line.split() for line in host.run(["cat", "/proc/mounts"]).stdout.splitlines()]
        sources = [row[0] for row in mounts if row[1] == "/fsx"]
        require(sources == [f"{ours.dns_name}@tcp:/{ours.mount_name}"], f"{host.name} mounted {sources}")


def _twin(cluster: Cluster) -> None:
    cluster.endpoint.file_systems.append(replace(file_system(cluster), id="fs-0twin"))


def _read_only(cluster: Cluster) -> None:
    file_system(cluster).read_only = True


def _hangs_once(cluster: Cluster) -> None:
    file_system(cluster).hangs_once = True


def _truncated(host: Host) -> None:
    """The agent is still writing the file when a script begins."""
    whole = host.read(RESOURCE_CONFIG)
    host.write(RESOURCE_CONFIG, whole[: len(whole) // 2])
    threading.Timer(2.0, host.write, (RESOURCE_CONFIG, whole)).start()


def _full_state(cluster: Cluster) -> None:
    """A controller has no disk space for Slurm's state: it starts anyway, and saves nothing."""
    fill(cluster.controller, "/var/spool/slurmctld")


def _malformed(host: Host) -> None:
    host.write(RESOURCE_CONFIG, '{"ClusterConfig": ')


def _absent(host: Host) -> None:
    """The file lists the worker under another instance's id and address."""
    text = host.read(RESOURCE_CONFIG).replace(host.instance_id, "i-0another").replace(host.address, "10.99.0.1")
    host.write(RESOURCE_CONFIG, text)


def _no_slurm(host: Host) -> None:
    host.run(
        "rm /opt/slurm/sbin/slurmd /usr/sbin/slurmd /etc/systemd/system/slurmd.service /lib/systemd/system/slurmd.*"
    )


def _each_its_own(cluster: Cluster) -> None:
    """Every worker has a different fault. The last one's file is complete soon."""
    for host, stage in zip(cluster.workers, (_malformed, _absent, _no_slurm, _truncated), strict=True):
        stage(host)


def _rivals(cluster: Cluster) -> None:
    """Each of two controllers has a slurm.conf that names only itself."""
    first, second = cluster.of_role("controller")
    others = [host for host in cluster.hosts if host is not first]
    second.write(SLURM_CONF, cluster.agent.slurm_conf(others), owner="slurm")
    first.write(
        SLURM_CONF, cluster.agent.slurm_conf([host for host in cluster.hosts if host is not second]), owner="slurm"
    )


def scenarios(stack: Stack) -> dict[str, Scenario]:
    """Every scenario by name."""
    small = Options(workers=1, environment=HASTY)

    # Who cannot ask metadata knows itself by its address, and has no credentials for the rest.
    keyless = {"*": "^step fsx failed: .*Unable to locate credentials"}

    def imds(mode: Mode = "v2", delay: float = 0.0) -> Options:
        environment = {**HASTY, "HYPERPOD_TIMEOUT_FSX": "3"}
        return replace(small, metadata=Metadata(mode, delay), environment=environment)

    def lacking(missing: str) -> Options:
        files = {name: content for name, content in stack.lifecycle_files().items() if name != missing}
        return replace(small, files=files)

    return {
        "fsx-foreign": Scenario(small, _foreign, check=_mounted_ours),
        "fsx-twin": Scenario(small, _twin, {"*": r"^step fsx failed: 2 file systems have .*fs-\w+ and fs-0twin"}),
        "fsx-mount-hangs": Scenario(
            replace(small, environment={**HASTY, "HYPERPOD_TIMEOUT_MOUNT": "6"}), _hangs_once, check=_mounted_ours
        ),
        "fsx-read-only": Scenario(small, _read_only, {"*": r"^step fsx failed: .*[Rr]ead-only"}),
        # The aws command waits a second for each of its three questions.
        "imds-slow": Scenario(imds(delay=0.5)),
        "imds-v1-only": Scenario(imds(mode="v1-only"), fails=keyless, says="no session token"),
        "imds-down": Scenario(imds(mode="down"), fails=keyless, says="did not answer"),
        "workers": Scenario(
            Options(workers=4, environment=PATIENT),
            _each_its_own,
            {
                "workers-1": r"^step identity failed: .*resource_config.json is malformed",
                "workers-2": r"^step identity failed: .*does not have this node: instance id i-\w+, addr",
                "workers-3": r"^step slurm failed: .*slurmd",
            },
        ),
        "module-missing": Scenario(lacking("hyperpod_node/storage/fsx.py"), fails={"*": r"fsx"}),
        "parameters-missing": Scenario(
            lacking("hyperpod_parameters.json"), fails={"*": r"^step parameters failed: .*is missing"}
        ),
        "state-full": Scenario(
            small,
            _full_state,
            {
                "controller-1": r"^step slurm failed: slurmctld cannot save its state: .*/var/spool/slurmctld.* free",
                "*": r"^step slurm failed: no controller answered",
            },
        ),
        "no-munge-key": Scenario(replace(small, no_munge_key=True), says="key made for the cluster"),
    }


def two_controllers(stack: Stack) -> str:
    """Both claim the cluster: exactly one becomes its controller, and the other reports that."""
    with Cluster(stack, Options(workers=1, controllers=2, environment=HASTY)) as cluster:
        cluster.start_hosts()
        _rivals(cluster)
        cluster.boot()
        runs = [cluster.scripts[host.name] for host in cluster.of_role("controller")]
        losers = [run for run in runs if run.code != 0]
        require(len(losers) == 1, f"{len(losers)} of 2 controllers failed: {[run.last_line for run in runs]}")
        require("two controllers claim the cluster" in losers[0].last_line, losers[0].last_line)
        return losers[0].last_line


_STATE = ("/etc", "/opt", "/root", "/home", "/usr/local")
# Files that HyperPod itself downloads again are not changed by the scripts.
_FINGERPRINT = "find {} -xdev \\( -type f -o -type l \\) -not -path '/opt/ml/*' -printf '%p %l %m %u %T@ %s\\n' | sort"


def files_of(host: Host) -> dict[str, str]:
    """Every file that scripts may write on a host and on the file system, with mode, owner, time and size."""
    found = host.run(_FINGERPRINT.format(" ".join((*_STATE, "/fsx")))).stdout.splitlines()
    return dict(line.split(" ", 1) for line in found)


def run_twice(cluster: Cluster) -> str:
    """Run ``on_create.sh`` again on every booted host: nothing changes, and it waits for nothing."""
    before = {host.name: files_of(host) for host in cluster.hosts}
    slowest = 0.0
    for host in cluster.hosts:
        run = cluster.script(host)
        require(run.wait(30) == 0, f"{host.name} failed the second time: {run.last_line}")
        slowest = max(slowest, run.seconds)
        after = files_of(host)
        was = before[host.name]
        changed = sorted(one for one in {*after, *was} if after.get(one) != was.get(one) and not _reports(one))
        require(not changed, f"the second run on {host.name} changed {', '.join(changed[:5])}")
        # It takes 0.3 s of CPU time; a busy machine may need several seconds for that, and a wait is longer.
        require(run.seconds < 8, f"the second run on {host.name} took {run.seconds:.1f} s")
    return f"nothing changed, slowest {slowest:.2f} s"


def _reports(name: str) -> bool:
    """Whether a file is a summary, which contains the time at which it was written."""
    return PurePosixPath(name).parent.name == "nodes" and name.endswith(".json")


NEEDS = {step.name: step.needs for step in (*SLURM, DATABASE, ACCOUNTING, ACCOUNTS, PEOPLE, SSH_JOBS)}
# The minimum seconds of a step for which a kill halfway differs from one at its end.
_LONG = 0.5


def usual_seconds(cluster: Cluster) -> dict[str, dict[str, float]]:
    """Boot one host after the other, like those that are killed. Returns each step's seconds by host name."""
    for host in cluster.hosts:
        require(cluster.script(host).wait(60) == 0, f"{host.name}: {cluster.scripts[host.name].last_line}")
    return {name: {step["name"]: step["seconds"] for step in steps_of(run)} for name, run in cluster.scripts.items()}


def killed_at(cluster: Cluster, host: Host, step: str, share: float, usual: Mapping[str, float]) -> None:
    """Kill the script on a fresh host during a step, then run it again: it must succeed.

    ``share``: the fraction of the step's usual time after which to kill. Raises CheckFailed, also if the script, or a
    long step, had already ended by itself.
    """
    run = cluster.script(host)
    for need in NEEDS[step]:
        _wait_for(run, f"step {need} ")
    time.sleep(share * usual[step])
    run.kill()
    where = f"{host.name}, {step} at {share:g} of its time"
    require(run.code == -signal.SIGKILL, f"{where}: nothing was killed, it ended with {run.code}: {run.last_line}")
    late = usual[step] > _LONG and any(line.startswith(f"step {step} ") for line in run.lines)
    require(not late, f"{where}: the step ended before the kill")
    again = cluster.script(host)
    code = again.wait(60)
    require(code == 0, f"{where}: after the kill {again.last_line or code}")


def _wait_for(run: Lifecycle, start: str) -> None:
    deadline = time.monotonic() + 60
    while not any(line.startswith(start) for line in list(run.lines)):
        if run.code is not None or time.monotonic() > deadline:
            raise CheckFailed(f"{run.host.name} never came to {start!r}: {run.last_line}")
        time.sleep(0.002)
