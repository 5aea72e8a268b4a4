"""The steps, in the order in which people read them; each starts as soon as the steps that it needs are done."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional, Sequence

from ..accounting import accounts, daemon, database
from ..facts import identity, parameters
from ..facts.model import Node
from ..health import setup as health
from ..host.errors import StepError
from ..metrics import step as metrics
from ..network import environment, metadata_guard, pod_metadata_guard
from ..people import apply, credentials, ssh_jobs, ssh_keys
from ..slurm import containers, controller, munge
from ..storage import fsx, home, lnet, lustre_client, pod_disk, scratch
from ..system import clock, kernel, programs
from .runner import Step

# Every limit is above the sum of the step's waits by settings.TIMEOUTS.
LIMIT = 2400.0


def _modes(scripts: str, image: Optional[str] = None) -> Dict[str, str]:
    """Return a step's work by ``slurm.setup``: the same in both modes, or with the image something else or nothing
    ("").
    """
    return {mode: does for mode, does in (("scripts", scripts), ("image", scripts if image is None else image)) if does}


SLURM: List[Step] = [
    Step("parameters", parameters.run, 10, modes=_modes("reads what the stack's program has rendered")),
    Step("identity", identity.run, 60, ("parameters",), modes=_modes("finds out which node this is")),
    Step("clock", clock.run, 40, ("identity",), modes=_modes("starts chrony")),
    Step("time-sync", clock.synchronised, 60, ("identity",), required=False, modes=_modes("checks the clock")),
    Step("metadata", metadata_guard.run, 360, ("identity",), modes=_modes("keeps jobs from the role of the node")),
    Step(
        "fsx",
        fsx.run,
        LIMIT,
        ("identity",),
        modes=_modes("waits for the file system, mounts it", "waits until the image has mounted it"),
    ),
    Step("scratch", scratch.run, 600, ("identity",), required=False, modes=_modes("mounts the instance's own disks")),
    Step("kernel", kernel.run, 30, ("identity",), required=False, modes=_modes("sets the kernel's network buffers")),
    Step("environment", environment.run, 120, ("identity",), modes=_modes("decides what jobs need for EFA")),
    Step("commands", programs.run, 60, ("identity",), modes=_modes("installs commands, prolog and epilog")),
    Step("health", health.run, 60, ("identity",), required=False, modes=_modes("installs the health checks")),
    Step(
        "munge",
        munge.run,
        LIMIT,
        ("fsx", "clock"),
        modes=_modes("takes or makes the key, starts munged", "waits until the image's munged accepts its own key"),
    ),
    Step(
        "ssh",
        ssh_keys.run,
        120,
        ("fsx",),
        modes=_modes(
            "makes keys of ubuntu's and the controller's, and lists host keys",
            "makes the controller's key, and lists host keys; ubuntu's are the image's",
        ),
    ),
    # The exporters are Docker's containers.
    Step(
        "docker-disk",
        pod_disk.run_docker,
        900,
        ("identity",),
        required=False,
        modes=_modes("moves Docker's data to the data volume"),
    ),
    Step("metrics", metrics.run, 60, ("commands", "docker-disk"), required=False, modes=_modes("starts the exporters")),
    Step(
        "credentials",
        credentials.run,
        360,
        ("commands", "environment"),
        required=False,
        modes=_modes("gives jobs on workers their own role"),
    ),
    Step("users-key", ssh_keys.users_key, 90, ("identity",), required=False, modes=_modes("installs `sshPublicKey`")),
    # No job starts before its user is kept from the role of the node.
    Step(
        "slurm",
        controller.run,
        LIMIT,
        ("munge", "environment", "commands", "metadata"),
        modes=_modes(
            "starts slurmctld or slurmd with the stack's settings",
            "waits for the image's slurmctld or slurmd, and lays the stack's settings over it",
        ),
    ),
]
# slurmctld ends where slurm.conf names a slurmdbd that does not answer.
DATABASE = Step("database", database.run, 900, ("identity",), modes=_modes("starts MariaDB, or finds RDS", ""))
# The client needs the authorities' certificates, which come with the commands.
REMOTE = replace(DATABASE, limit=LIMIT, needs=("commands",))
ACCOUNTING = Step(
    "accounting",
    daemon.run,
    LIMIT,
    ("database", "munge", "commands", "environment"),
    modes=_modes("starts slurmdbd, copies its database every hour", ""),
)
ACCOUNTS = Step(
    "slurm-accounts",
    accounts.run,
    300,
    ("slurm",),
    required=False,
    modes=_modes("makes the accounts, shares and limits"),
)
HOME = Step(
    "home",
    home.run,
    LIMIT,
    ("fsx",),
    modes=_modes("mounts the file system for /home", "waits until the image has mounted it"),
)
# A job runs as its user, who must exist before slurmd accepts any.
PEOPLE = Step("people", apply.run, LIMIT, ("fsx",), modes=_modes("makes the people's accounts, homes and keys"))
# Before slurmd and slurmctld, which read once which plug-ins they have.
CONTAINERS = Step(
    "containers",
    containers.run,
    600,
    ("identity",),
    required=False,
    modes=_modes("sets Enroot and Pyxis up", ""),
)
SSH_JOBS = Step(
    "ssh-jobs",
    ssh_jobs.run,
    60,
    ("ssh", "slurm"),
    required=False,
    modes=_modes("keeps people without a job from logging in to workers"),
)

# On EKS a CSI driver mounts the file system, manifests set jobs' variables, and pods start all other programs.
EKS: List[Step] = [
    *(step for step in SLURM if step.name in ("parameters", "identity", "clock", "scratch", "kernel", "health")),
    Step("pod-disk", pod_disk.run, 900, ("identity",), required=False),
    Step("pod-metadata", pod_metadata_guard.run, 360, ("identity",)),
    Step("lustre-client", lustre_client.run, 400, ("identity",), required=False),
]
# Two modules at 60 s, and at most 24 commands at 30 s.
LNET = Step("lnet", lnet.run, 900, ("identity",), required=False, modes=_modes("sets EFA up for Lustre's client", ""))
# Every step of a Slurm node, as docs/slurm-image.md has them.
ALL: List[Step] = [LNET, HOME, PEOPLE, *SLURM, DATABASE, ACCOUNTING, ACCOUNTS, CONTAINERS, SSH_JOBS]


def for_orchestrator(node: Node) -> List[Step]:
    """Return the steps of this cluster's kind; Slurm's if the parameters cannot be read, so that they report why."""
    try:
        found = parameters.parse(parameters.load(node), parameters.FILE_NAME)
    except StepError:
        return SLURM
    if found.orchestrator == "eks":
        return [*EKS, replace(LNET, needs=("lustre-client",))] if found.fsx_efa else EKS
    steps = SLURM
    if found.ssh_only_with_job:
        steps = [*steps, SSH_JOBS]
    if apply.shipped(node.host):
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
    return after_image(steps) if found.setup == "image" else steps


def after_image(steps: Sequence[Step]) -> List[Step]:
    """Return the steps after those of HyperPod's image.

    Its slurmd may get a job before they end. The prolog that slurmctld sends it (prolog-gate.sh) holds that job until
    step slurm has written prolog.env, after all guards of jobs.
    """
    found = [step for step in steps if "image" in step.modes]
    names = {step.name for step in found}
    return [replace(step, needs=tuple(need for need in step.needs if need in names)) for step in found]


def _before(names: Sequence[str], first: Step, steps: Sequence[Step]) -> List[Step]:
    """Return the steps and one more, which the steps of these names also need."""
    return [
        first,
        *(replace(step, needs=(*step.needs, first.name)) if step.name in names else step for step in steps),
    ]
