"""``kubeconfig``: how kubectl reaches the stack's Kubernetes API, with credentials that AWS gives out as it asks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from . import console, target
from .failures import bad_input
from .target import Target


def describe(chosen: Target) -> dict[str, Any]:
    """What EKS says of the control plane. Raises Failure for a Slurm stack."""
    if not chosen.on_eks:
        raise bad_input(
            f"{chosen.stack} is a Slurm stack: it has no Kubernetes API", f"python -m operations connect {chosen.stack}"
        )
    return dict(chosen.aws.client("eks").describe_cluster(name=chosen.cluster_name)["cluster"])


def render(cluster: dict[str, Any]) -> str:
    """A kubeconfig. It holds no secret: `aws eks get-token` is asked each time."""
    name, region = cluster["name"], cluster["arn"].split(":")[3]
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": cluster["endpoint"],
                    "certificate-authority-data": cluster["certificateAuthority"]["data"],
                },
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "exec": {
                        "apiVersion": "client.authentication.k8s.io/v1beta1",
                        "command": "aws",
                        "args": ["eks", "get-token", "--region", region, "--cluster-name", name],
                        "interactiveMode": "IfAvailable",
                    }
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def kubeconfig_command(
    stack: console.Stack,
    write: Annotated[
        Path | None, typer.Option("--write", "-w", metavar="FILE", help="Write it there, readable by you alone.")
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Print or write a kubeconfig for an EKS stack.

    It needs the AWS CLI when kubectl uses it, and holds no secret itself.

    \b
      python -m operations kubeconfig eks-gpu --write ~/.kube/eks-gpu
      KUBECONFIG=~/.kube/eks-gpu kubectl get nodes
    """
    text = render(describe(target.load(stack)))
    if write is not None:
        path = write.expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123
            file.write(text)
        console.note(f"Written: KUBECONFIG={path} kubectl get nodes")
    if as_json:
        console.emit(yaml.safe_load(text))
    elif write is None:
        console.out().out(text.rstrip(), highlight=False)
