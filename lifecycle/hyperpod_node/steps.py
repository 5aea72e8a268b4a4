"""The steps, in the order people read them in; each starts as soon as those it needs are done."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Sequence

from . import (
    clock,
    containers,
    credentials,
    environment,
    fsx,
    home,
    identity,
    install,
    kernel,
    lnet,
    lustre_client,
    metadata,
    munge,
    parameters,
    people,
    pod_disk,
    pod_metadata,
    scratch,
    slurm,
    ssh,
    ssh_jobs,
)
from .accounting import accounts, daemon, database
from .errors import StepError
from .health import setup as health
from .metrics import step as metrics
from .model import Node
from .runner import Step

# Every limit is above the sum of what the step may wait for by settings.TIMEOUTS.
LIMIT = 2400.0

SLURM: List[Step] = [
    Step("parameters", parameters.run, 10),
    Step("identity", identity.run, 60, ("parameters",)),
    Step("clock", clock.run, 40, ("identity",)),
    Step("time-sync", clock.synchronised, 60, ("identity",), required=False),
    Step("metadata", metadata.run, 360, ("identity",)),
    Step("fsx", fsx.run, LIMIT, ("identity",)),
    Step("scratch", scratch.run, 600, ("identity",), required=False),
    Step("kernel", kernel.run, 30, ("identity",), required=False),
    Step("environment", environment.run, 120, ("identity",)),
    Step("commands", install.run, 60, ("identity",)),
    Step("health", health.run, 60, ("identity",), required=False),
    Step("munge", munge.run, LIMIT, ("fsx", "clock")),
    Step("ssh", ssh.run, 120, ("fsx",)),
    # The exporters are Docker's containers.
    Step("docker-disk", pod_disk.run_docker, 900, ("identity",), required=False),
    Step("metrics", metrics.run, 60, ("commands", "docker-disk"), required=False),
    Step("credentials", credentials.run, 360, ("commands", "environment"), required=False),
    Step("users-key", ssh.users_key, 90, ("identity",), required=False),
    # No job starts before its user is kept from the role of the node.
    Step("slurm", slurm.run, LIMIT, ("munge", "environment", "commands", "metadata")),
]
# slurmctld ends where slurm.conf names a slurmdbd that does not answer.
DATABASE = Step("database", database.run, 900, ("identity",))
# The client needs the authorities' certificates, which come with the commands.
REMOTE = Step("database", database.run, LIMIT, ("commands",))
ACCOUNTING = Step("accounting", daemon.run, LIMIT, ("database", "munge", "commands", "environment"))
ACCOUNTS = Step("slurm-accounts", accounts.run, 300, ("slurm",), required=False)
HOME = Step("home", home.run, LIMIT, ("fsx",))
# A job runs as its user, whom the node must know before slurmd takes any.
PEOPLE = Step("people", people.run, LIMIT, ("fsx",))
# Before slurmd and slurmctld, which read once which plug-ins they have.
CONTAINERS = Step("containers", containers.run, 600, ("identity",), required=False)
SSH_JOBS = Step("ssh-jobs", ssh_jobs.run, 60, ("ssh", "slurm"), required=False)

# On EKS the file system comes by a CSI driver, jobs' variables by their manifests, and pods start everything else.
EKS: List[Step] = [
    *(step for step in SLURM if step.name in ("parameters", "identity", "clock", "scratch", "kernel", "health")),
    Step("pod-disk", pod_disk.run, 900, ("identity",), required=False),
    Step("pod-metadata", pod_metadata.run, 360, ("identity",)),
    Step("lustre-client", lustre_client.run, 400, ("identity",), required=False),
]
# Two modules at 60 s, and at most 24 commands at 30 s.
LNET = Step("lnet", lnet.run, 900, ("identity",), required=False)


def for_orchestrator(node: Node) -> List[Step]:
    """The steps of this cluster's kind; Slurm's where the parameters cannot be read, so that they say why."""
    try:
        found = parameters.parse(parameters.load(node), parameters.FILE_NAME)
    except StepError:
        return SLURM
    if found.orchestrator == "eks":
        return [*EKS, replace(LNET, needs=("lustre-client",))] if found.fsx_efa else EKS
    steps = SLURM
    if found.ssh_only_with_job:
        steps = [*steps, SSH_JOBS]
    if people.shipped(node.host):
        steps = _before(("slurm",), PEOPLE, steps)
    if found.accounting:
        first = REMOTE if found.accounting.database == "rds" else DATABASE
        steps = [first, *_before(("slurm",), ACCOUNTING, steps), ACCOUNTS]
    if found.containers:
        steps = _before(("slurm",), CONTAINERS, steps)
    if found.home_fsx_id:
        # Keys go into the home folders that stay.
        steps = _before(("ssh", "users-key", "people"), HOME, steps)
    if found.fsx_efa:
        # Configure LNet before mounting.
        steps = _before(("fsx",), LNET, steps)
    return steps


def _before(names: Sequence[str], first: Step, steps: Sequence[Step]) -> List[Step]:
    """The steps and one more, which those of these names need too."""
    return [
        first,
        *(replace(step, needs=(*step.needs, first.name)) if step.name in names else step for step in steps),
    ]
