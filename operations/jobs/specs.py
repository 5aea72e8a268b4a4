"""The jobs of ``jobs/jobs.yaml``: what each needs, its command on EKS and its words on Slurm."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import jinja2
from hyperpod_commands import nccom_test, pairs, slow_node

from components.catalogue.accelerators import Architecture
from components.catalogue.regions import Region
from components.common.documents import load
from components.config import InstanceGroup
from components.kubernetes.pod_environment import POD_INTERFACE, pod_variables

FOLDER = Path(__file__).parents[2] / "jobs"
IMAGE_ARCHITECTURE: Architecture = "x86_64"
# By which the verbs find a job and its pods.
NAME_LABEL = "app.kubernetes.io/name"
# Where a job's scripts are in its pods, and where its results go.
SCRIPTS, RESULTS = "/opt/training", "/fsx/checkpoints"
# The home of the user that its pods run as.
SCRATCH = "/scratch"
TOKEN_SECRET, TOKEN_KEY = "hf-token", "token"
# On Slurm a test is a program of the nodes', which gets an allocation of its own unless it is told that it has one.
_BIN = "/opt/hyperpod/bin"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One rendering: where, on how many nodes, with how many processes each, and the script's own arguments.

    ``least`` is the number of nodes with which an elastic job starts. ``command`` is another template than the job's
    own. ``network`` is the only one that NCCL may use, "" where it may choose. ``collective`` is what a bandwidth test
    measures.
    """

    name: str
    group: InstanceGroup
    nodes: int
    processes: int
    least: int = 0
    command: str = ""
    arguments: str = ""
    network: str = ""
    collective: str = "all_reduce"

    @property
    def values(self) -> dict[str, Any]:
        """What the templates of commands can name."""
        variables = sorted(pod_variables(self.group))
        forwarded = [name for name in variables if name.startswith(("NCCL_", "FI_"))]
        return {
            "accelerator": self.group.type.accelerator,
            "name": self.name,
            "nodes": self.nodes,
            "least": self.least,
            "processes": self.processes,
            "arguments": self.arguments,
            "collective": self.collective,
            "scripts": SCRIPTS,
            "results": RESULTS,
            "scratch": SCRATCH,
            "nccl_variables": [*forwarded, *(["NCCL_NET"] if self.network else [])],
            "nccl_pair": f"{' '.join(slow_node.NCCL_SIZES)} -g 1 -c 1",
            "nccom_collective": nccom_test.COLLECTIVES.get(self.collective, ""),
            "nccom_sweep": " ".join(nccom_test.SWEEP),
            "nccom_check": " ".join(nccom_test.CHECK),
            "nccom_pair": " ".join(slow_node.NCCOM_SIZES),
            "efa_variables": [name for name in variables if name.startswith("FI_")],
            "first_port": nccom_test.FIRST_PORT,
            "interface": POD_INTERFACE,
            "rounds": pairs.rounds([str(place) for place in range(self.nodes)]),
        }


@dataclass(frozen=True, kw_only=True)
class Batch:
    """How Slurm runs a job: ``files`` of ``jobs/slurm``, the batch file first, and after its name the job's arguments.

    Before them comes ``first``, or ``program``, one of the nodes' own, with the number of nodes and of devices of each.
    ``per_device`` are the options of sbatch that take the number of GPUs of a node. ``image`` says whether it can run
    in a container: ``needed`` where it cannot run without.
    """

    files: tuple[str, ...]
    first: tuple[str, ...] = ()
    program: str = ""
    per_device: tuple[str, ...] = ("--ntasks-per-node", "--gpus-per-node")
    image: Literal["no", "possible", "needed"] = "possible"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job. ``command`` is the template of what its pods run, by default the one of its name.

    Of torchrun it starts ``script``, by default the first of ``scripts``, after the line ``before``; without ``out`` it
    gives the script no such argument. An ``elastic`` one can continue on another number of nodes. ``progress`` matches
    the lines with its loss. ``recipe`` is the folder that makes its image, where no public one has all it imports.
    """

    title: str
    template: str
    images: Mapping[str, str]
    command: str
    before: str = ""
    script: str = ""
    scripts: tuple[str, ...] = ()
    out: bool = True
    operator: Literal["mpi_operator", "training_operator"] | None = None
    token: bool = False
    elastic: bool = False
    progress: str = ""
    recipe: str = ""
    deadline: int | None = None
    batch: Batch | None = None

    def image(self, accelerator: str, region: Region) -> str:
        """The image for one of its accelerators."""
        return self.images[accelerator].format(registry=region.deep_learning_registry)

    def on_eks(self, plan: Plan) -> str:
        """What its pods run."""
        script = self.script or Path(next(iter(self.scripts), "")).name
        out = f" --out {RESULTS}/{plan.name}" if self.out else ""
        template = templates().get_template(f"{plan.command or self.command}.sh.j2")
        return template.render(plan.values, before=self.before, script=script, out=out).rstrip()

    def on_slurm(self, plan: Plan) -> list[str]:
        """The words after its batch file's name. Raises ValueError for arguments that are no words."""
        assert self.batch is not None, "a job without one has a verb of its own"
        if self.command == "device-check":
            # srun gives all tasks the variables of the first node's shell, its name among them.
            own = "PATH=$PATH:/opt/aws/neuron/bin HOSTNAME=$(hostname)"
            return ["srun", "--mpi=none", "bash", "-ceu", f"{own}\n{self.on_eks(plan)}"]
        program = self.batch.program
        first = [f"{_BIN}/{program}", str(plan.nodes), str(plan.processes)] if program else self.batch.first
        return [*first, *shlex.split(plan.arguments)]


@cache
def templates() -> jinja2.Environment:
    """Those of ``jobs/eks``. Objects and lists come out as JSON; an unknown name is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "eks"),
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: json.dumps(value) if isinstance(value, (dict, list)) else value,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _job(name: str, row: Mapping[str, Any]) -> Job:
    given = {"command": name, **row}
    if batch := row.get("batch"):
        given["batch"] = Batch(**batch)
    return Job(**given)


JOBS: Mapping[str, Job] = MappingProxyType(
    {name: _job(name, row) for name, row in load((FOLDER / "jobs.yaml").read_text(encoding="utf-8")).items()}
)


def own_job(script: str) -> Job:
    """A script that is not this project's, for torchrun on all devices. Its arguments are its own alone."""
    return Job(
        title=script,
        template="pytorch",
        images=JOBS["device-check"].images,
        command="torchrun",
        before="unset NEURON_RT_NUM_CORES",
        script=script,
        out=False,
        operator="training_operator",
        elastic=True,
        batch=Batch(files=("torchrun.sbatch",), first=(script,), per_device=("--gpus-per-node",)),
    )
