"""Names that AWS limits, and the cluster id that distinguishes this stack's resources from any other's."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from hyperpod_node.facts.model import CLUSTER_ID_TAG as CLUSTER_ID_TAG
from hyperpod_node.facts.model import own_path as own_path

# Amazon S3 User Guide, "Bucket naming rules"; IAM User Guide, "IAM and STS quotas".
BUCKET_LIMIT = 63
ROLE_LIMIT = 64
# CreateCluster, ClusterName: 1 to 63 characters.
CLUSTER_LIMIT = 63

# The script that HyperPod runs on every node (lifecycle/).
ENTRY_POINT = "on_create.sh"
# The output that later deployments of the stack are compared with (config/change_checks.py).
DEPLOYED_WITH = "deployedWith"
# The output with the lifecycle bucket's name.
BUCKET = "lifecycleBucket"
_DIGEST_LENGTH = 8
# The form of Names.bucket, whosever stack it is.
LIFECYCLE_BUCKET = re.compile(rf"sagemaker-.+-[0-9a-f]{{{_DIGEST_LENGTH}}}")

# Every role the program can make; the longest decides whether a cluster name fits.
RoleKind: TypeAlias = Literal[
    "controller",
    "login",
    "worker",
    "flow-logs",
    "grafana",
    "vpc-cni",
    "ebs-csi",
    "fsx-csi",
    "s3-csi",
    "operator",
    "metrics",
    "karpenter",
    "spaces",
    "mlflow",
    "mlflow-job",
]
ROLE_KINDS: tuple[RoleKind, ...] = get_args(RoleKind)


@dataclass(frozen=True, kw_only=True)
class Names:
    """The names of one stack's resources. All of them are fixed before anything is created."""

    cluster: str
    region: str
    digest: str

    @property
    def cluster_id(self) -> str:
        """Unique for cluster name, account, region and stack. Nodes find their file system by a tag with it."""
        return f"{self.cluster}-{self.digest}"

    @property
    def bucket(self) -> str:
        """HyperPod accepts lifecycle scripts only from buckets whose name begins with ``sagemaker-``."""
        return f"sagemaker-{self.cluster}-{self.region}-{self.digest}"

    @property
    def artifacts(self) -> str:
        """The bucket of MLflow's files. SageMaker's managed policies let its users write every ``sagemaker-*``."""
        return f"mlflow-{self.cluster}-{self.region}-{self.digest}"

    def document(self, script: str) -> str:
        """Return an SSM document's name.

        SSM reserves names that begin with aws, amazon or amzn, so the name does not begin with the cluster's.
        """
        return f"hyperpod-{self.cluster_id}-{script}"

    @property
    def ssh_key_parameter(self) -> str:
        """The name of the parameter with the key that may log in as ubuntu."""
        return f"/{own_path(self.cluster)}/ssh-public-key"

    @property
    def database(self) -> str:
        """The name of the database of Slurm's accounting: it begins with a letter (RDS, CreateDBInstance)."""
        return f"hyperpod-{self.cluster_id}"

    def role(self, kind: RoleKind) -> str:
        """Return a role's name. Roles are global to the account, so their names contain the region."""
        return self._role(kind)

    def team_role(self, uid: int) -> str:
        """Return the name of a team's role: teams' own names can be too long."""
        return self._role(f"team-{uid}")

    @property
    def any_role(self) -> str:
        """A policy pattern that matches all the stack's roles, and no other stack's."""
        return self._role("*")

    def _role(self, kind: str) -> str:
        return f"{self.cluster}-{self.region}-{kind}-{self.digest}"


def log_group(cluster: str, what: str) -> str:
    """Return the name of a log group of the stack."""
    return f"/{own_path(cluster)}/{what}"


def events_log_group(cluster: str) -> str:
    """The log group for HyperPod's events: EventBridge may write only below /aws/events/."""
    return f"/aws/events/{own_path(cluster)}"


def for_stack(*, cluster: str, region: str, account: str, project: str, stack: str) -> Names:
    """Return the names of a stack. The digest keeps two stacks, accounts or regions from claiming the same bucket."""
    seed = "/".join((account, region, project, stack, cluster))
    return Names(cluster=cluster, region=region, digest=hashlib.sha256(seed.encode()).hexdigest()[:_DIGEST_LENGTH])


def longest_cluster_name(region: str) -> int:
    """Return the maximum length of a cluster name in a region, by the limits for bucket and role names."""
    empty = Names(cluster="", region=region, digest="0" * _DIGEST_LENGTH)
    roles = [empty.team_role(99_999), *map(empty.role, ROLE_KINDS)]
    return min(CLUSTER_LIMIT, BUCKET_LIMIT - len(empty.bucket), ROLE_LIMIT - max(map(len, roles)))


def readable(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stack's outputs for people: all except the record that only later deployments read."""
    return {name: value for name, value in outputs.items() if name != DEPLOYED_WITH}
