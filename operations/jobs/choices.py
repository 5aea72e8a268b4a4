"""What people choose of a job: the same for Kubernetes and Slurm, and each an option of the verbs that submit one."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import typer

# Whose jobs they are on Slurm where nobody is named: a user that every node has (docs/slurm.md).
PERSON = "ubuntu"
# Kubeflow's training operator, or SageMaker's.
Operator: TypeAlias = Literal["kubeflow", "hyperpod"]
# By the layers of EC2's network; the third is the nearest to a node.
Placement: TypeAlias = Literal["near", "layer-1", "layer-2", "layer-3", "any"]


@dataclass(frozen=True)
class Choices:
    """The choices. What is left out is the default that its help names."""

    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="EKS: a team's namespace (default: the first team's).")
    ] = None
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help=f"Slurm: whose job it is (default: {PERSON}).")
    ] = None
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-N", metavar="N", help="Number of nodes (default: all of the group).")
    ] = None
    min_nodes: Annotated[
        int | None,
        typer.Option(
            "--min-nodes", metavar="N", help="EKS: an elastic job, which starts with N and has up to --nodes."
        ),
    ] = None
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="Worker group (default: the first).")
    ] = None
    devices: Annotated[
        int | None, typer.Option("--devices", help="GPUs or Trainium chips per node (default: all).")
    ] = None
    efa: Annotated[int | None, typer.Option("--efa", help="EKS: EFA interfaces per node (default: all).")] = None
    placement: Annotated[
        Placement | None,
        typer.Option(
            "--placement",
            help="EKS: near each other as far as possible (default with hyperpod:charts.topology), below one node of a "
            "layer of EC2's network or not at all, or on any nodes.",
        ),
    ] = None
    buckets: Annotated[
        list[str] | None,
        typer.Option(
            "--bucket", metavar="NAME", help="EKS: a bucket of the team's, at /s3/NAME in the job. May be repeated."
        ),
    ] = None
    operator: Annotated[
        Operator,
        typer.Option("--operator", help="EKS: who runs the job, Kubeflow's training operator or SageMaker's."),
    ] = "kubeflow"
    image: Annotated[
        str | None,
        typer.Option("--image", help="Container image (default: on EKS one of AWS's public images, on Slurm none)."),
    ] = None
    arguments: Annotated[
        str, typer.Option("--arguments", "-a", help='Arguments for the script, like "--steps 500".')
    ] = ""
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="A variable of the job's; no secret. May be repeated."),
    ] = None


DEFAULTS = Choices()
