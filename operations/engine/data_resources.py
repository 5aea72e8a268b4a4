"""What holds data or running work, by type of resource, and what is lost when one is replaced or deleted."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from .state import HYPERPOD_CLUSTER


@dataclass(frozen=True)
class Loss:
    """What is lost. ``asked``: such a resource is deleted only because a configuration key says so (observability, a
    team), so the deletion is intended."""

    what: str
    asked: bool = False


PRECIOUS: Mapping[str, Loss] = MappingProxyType(
    {
        "aws:fsx/lustreFileSystem:LustreFileSystem": Loss("every file on it is lost"),
        "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": Loss("every home on it is lost"),
        "aws:rds/instance:Instance": Loss("the history of all jobs is lost, with its backups"),
        "aws:eks/cluster:Cluster": Loss("everything that runs on it ends"),
        HYPERPOD_CLUSTER: Loss("every node ends, with all jobs"),
        # AWS KMS Developer Guide, "Delete an AWS KMS key".
        "aws:kms/key:Key": Loss("what it encrypts is unreadable once its waiting period is over"),
        "aws:sagemaker/mlflowApp:MlflowApp": Loss("every experiment in it is deleted", asked=True),
        # Both are deleted with their content (forceDestroy, forceDelete).
        "aws:s3/bucket:Bucket": Loss("everything in it is deleted: the scripts of nodes, or MLflow's files"),
        "aws:ecr/repository:Repository": Loss("every image in it is deleted"),
        # Amazon Managed Service for Prometheus API Reference, DeleteWorkspace: permanently, within a month.
        "aws:amp/workspace:Workspace": Loss("all its metrics are deleted", asked=True),
        # Amazon Managed Grafana User Guide, "Delete a Amazon Managed Grafana workspace".
        "aws:grafana/workspace:Workspace": Loss(
            "its dashboards, data sources, alerts and snapshots are deleted", asked=True
        ),
        # Kubernetes documentation, "Share a Cluster with Namespaces"; the volume of /fsx is retained.
        "kubernetes:core/v1:Namespace": Loss(
            "everything in it is deleted, including jobs, pods and secrets; files on /fsx stay", asked=True
        ),
        # Amazon CloudWatch Logs API Reference, DeleteLogGroup.
        "aws:cloudwatch/logGroup:LogGroup": Loss("what it has recorded is deleted", asked=True),
    }
)
