"""What a verb works on: a stack's checked configuration, its AWS account, and its cluster."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from components.common.names import Names, for_stack
from components.config import Config

from .aws import SERVED, Aws
from .failures import bad_input, is_missing
from .project.loading import Project, checked, load_project

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Target:
    """A stack, as its files describe it, and AWS."""

    project: Project
    config: Config
    aws: Aws

    @property
    def stack(self) -> str:
        """Its name."""
        return self.project.stack

    @property
    def cluster_name(self) -> str:
        """Name of the HyperPod cluster, and with EKS of the EKS cluster too."""
        return self.config.settings.cluster_name

    @property
    def on_eks(self) -> bool:
        """Whether Kubernetes schedules the jobs."""
        return self.config.settings.orchestrator == "eks"

    @cached_property
    def names(self) -> Names:
        """Names of the stack's resources; asks AWS for the account's id."""
        return for_stack(
            cluster=self.cluster_name,
            region=self.aws.region,
            account=self.aws.account_id,
            project=self.project.name,
            stack=self.stack,
        )

    @cached_property
    def found_cluster(self) -> dict[str, Any] | None:
        """SageMaker's description of the cluster, None where there is none."""
        try:
            return dict(self.aws.client("sagemaker").describe_cluster(ClusterName=self.cluster_name))
        except ClientError as error:
            if not is_missing(error):
                raise
            return None

    def changed(self) -> None:
        """Forget what SageMaker has said of the cluster: it is another one now, or has another size."""
        self.__dict__.pop("found_cluster", None)

    @property
    def cluster(self) -> dict[str, Any]:
        """SageMaker's description of the cluster. Raises Failure where there is none."""
        if self.found_cluster is None:
            raise bad_input(
                f"there is no HyperPod cluster {self.cluster_name} in {self.aws.region}",
                f"deploy it (`hyperpod deploy {self.stack}`), or check the credentials' account",
            )
        return self.found_cluster

    @property
    def cluster_id(self) -> str:
        """The last part of the cluster's ARN, which Session Manager targets and log groups carry."""
        return str(self.cluster["ClusterArn"]).rsplit("/", 1)[1]


def load(stack: str, overrides: list[str] | None = None, root: Path | None = None) -> Target:
    """Read and check a stack's configuration, without calls to AWS. Raises ProjectError and ConfigError.

    In the environment of a served rehearsal, the stack's file is the rehearsal's copy, which the verbs may change.
    """
    project = load_project(root or Path(os.environ.get(SERVED, ROOT)), stack, overrides or [])
    config = checked(project)
    return Target(project=project, config=config, aws=Aws(config.region.name))
