"""The verb ``kubeconfig``."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
import yaml

from .. import target
from ..kubernetes.kubeconfig import describe, render
from ..terminal import console


def kubeconfig_command(
    stack: console.Stack,
    write: Annotated[
        Path | None, typer.Option("--write", "-w", metavar="FILE", help="Write to FILE, readable only by you.")
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Print or write a kubeconfig for an EKS stack.

    kubectl then calls the AWS CLI for credentials; the file contains no secret.

    \b
      hyperpod kubeconfig eks-gpu --write ~/.kube/eks-gpu
      KUBECONFIG=~/.kube/eks-gpu kubectl get nodes
    """
    text = render(describe(target.load(stack)))
    if write is not None:
        path = write.expanduser()
        # Replace a link's target, not the link. The new file is private from its first byte.
        place = path.resolve()
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, prefix=f".{place.name}.", delete=False) as file:
            file.write(text)
        Path(file.name).replace(place)
        console.note(f"Written: KUBECONFIG={path} kubectl get nodes")
    if as_json:
        console.emit(yaml.safe_load(text))
    elif write is None:
        console.out().out(text.rstrip(), highlight=False)
