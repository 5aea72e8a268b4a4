"""`kubeconfig`: reach an EKS stack with kubectl."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
import yaml

from .. import console, target
from ..kubernetes.kubeconfig import describe, render


def kubeconfig_command(
    stack: console.Stack,
    write: Annotated[
        Path | None, typer.Option("--write", "-w", metavar="FILE", help="Write it to FILE, readable only by you.")
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Print or write a kubeconfig for an EKS stack.

    kubectl then needs the AWS CLI. The file contains no secret.

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
