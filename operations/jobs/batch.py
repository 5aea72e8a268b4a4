"""Jobs for Slurm: the files of ``jobs/slurm``, with sbatch's options for the stack's own nodes."""

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from hyperpod_node.facts.model import USER_NAME

from components.config import Config

from .choices import DEFAULTS, PERSON, Choices
from .render import ROOT
from .requests import JobError, assignments, find_group, known, request_problems
from .specs import Job, Plan

_FILES = ROOT / "jobs" / "slurm"
_USER = re.compile(USER_NAME)


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job for sbatch. ``files`` are by name: the batch file first, then what it needs beside it."""

    name: str
    user: str
    options: tuple[str, ...]
    words: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def command(self) -> str:
        """The command line, for the folder that has the files."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        env = ["env", *variables] if variables else []
        return shlex.join([*env, "sbatch", *self.options, next(iter(self.files)), *self.words])


def submission(
    name: str,
    config: Config,
    choices: Choices = DEFAULTS,
    *,
    deadline: float | None = None,
    job: Job | None = None,
    files: Mapping[str, str] | None = None,
) -> Submission:
    """A job as Slurm is asked for it, with the same choices as ``render``.

    ``deadline`` is in seconds from its start, by default the job's own. Raises JobError.
    """
    job = job or known(name, config)
    batch, settings = job.batch, config.settings
    if batch is None:
        raise JobError(["with Slurm this is a verb: hyperpod node find-slow STACK"])
    workers, problems = find_group(config, choices.group)
    nodes = workers.count if choices.nodes is None else choices.nodes
    devices, image, user = choices.devices, choices.image, choices.user
    problems += request_problems(name, job, config, workers, nodes, devices)
    variables = assignments(choices.env, problems)
    gpus = workers.type.accelerator == "gpu"
    if choices.namespace is not None:
        problems.append("--namespace is for EKS; with Slurm --user names whose job it is")
    if choices.operator != "kubeflow":
        problems.append("--operator is for EKS; with Slurm its own controller runs the job")
    if choices.min_nodes is not None:
        problems.append("--min-nodes is for EKS; with Slurm a job that lost a node waits for another")
    if choices.efa is not None:
        problems.append("--efa is for EKS; with Slurm a job sees all EFA interfaces of its nodes")
    if choices.placement is not None:
        problems.append(
            "--placement is for EKS; with Slurm jobs are near each other where they can, or sbatch --switches=1"
        )
    if devices is not None and not gpus:
        problems.append(f"--devices: with Slurm a job on {workers.type.name} gets whole nodes")
    if user is not None and not _USER.fullmatch(user):
        problems.append(f'--user "{user}" is not a user name')
    if batch.image == "no" and image:
        problems.append(f"--image: with Slurm {name} runs on the nodes themselves")
    elif batch.image == "needed" or image:
        if not settings.slurm.containers:
            problems.append("a container image needs hyperpod:slurm.containers, for nodes that boot afterwards")
        image = image or job.image(settings.accelerator, config.region)
        variables |= {"CONTAINER_IMAGE": enroots_name(image)}
    processes = devices or workers.type.accelerators
    if not gpus and job.template != "device-check":
        processes = workers.type.neuron_cores
    plan = Plan(name=name, group=workers, nodes=nodes, processes=processes, arguments=choices.arguments)
    try:
        words = job.on_slurm(plan)
    except ValueError as error:
        problems.append(f"--arguments {choices.arguments!r}: {error}")
    if problems:
        raise JobError(problems)
    options = [f"--job-name={name}", f"--nodes={nodes}"]
    options += [f"{option}={processes}" for option in batch.per_device if gpus]
    if choices.group or len(config.worker_groups) > 1:
        options.append(f"--partition={workers.name}")
    if job.deadline:
        options.append(f"--time={math.ceil((deadline or job.deadline) / 60)}")
    own = {file: (_FILES / file).read_text(encoding="utf-8") for file in batch.files}
    return Submission(
        name=name,
        user=user or PERSON,
        options=tuple(options),
        words=tuple(words),
        environment=variables,
        files={**own, **(files or {})},
    )


def enroots_name(image: str) -> str:
    """An image's address as Enroot takes it, whose registry ends with a number sign; a file is left as it is."""
    registry, slash, rest = image.partition("/")
    if (
        image.startswith(("/", "docker://"))
        or "#" in image
        or not slash
        or not re.search(r"[.:]|^localhost$", registry)
    ):
        return image
    return f"{registry}#{rest}"
