"""``kubeconfig``: how kubectl reaches the stack's Kubernetes API, with credentials from AWS on demand."""

from typing import Any

import yaml

from ..failures import bad_input
from ..target import Target


def describe(chosen: Target) -> dict[str, Any]:
    """EKS's description of the control plane. Raises Failure for a Slurm stack."""
    if not chosen.on_eks:
        raise bad_input(
            f"{chosen.stack} is a Slurm stack: it has no Kubernetes API", f"hyperpod node connect {chosen.stack}"
        )
    return dict(chosen.aws.client("eks").describe_cluster(name=chosen.cluster_name)["cluster"])


def render(cluster: dict[str, Any]) -> str:
    """A kubeconfig. It contains no secret: kubectl calls `aws eks get-token` each time."""
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
