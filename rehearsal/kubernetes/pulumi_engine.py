"""The stack on the real Pulumi engine with the real pulumi-eks and pulumi-kubernetes; the account plays the rest.

The account's EKS cluster is this machine's API server, and its HyperPod cluster adds the nodes.
"""

import base64
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from components.config import Config
from components.kubernetes.helm import NAMESPACE, RELEASE_NAME
from operations.engine.state import HYPERPOD_CLUSTER
from operations.project.loading import Project

from ..account import Account
from ..account.eks import CLUSTER as EKS_CLUSTER
from ..engines.real import NO_CLI, EngineFailure, OnLine, RealStack, Surroundings, plugins_folder, real_stack
from .control_plane import ControlPlane
from .declared import Declared, StackFailed
from .deploy import DeployFailed
from .karpenter import arrive, depart
from .kubectl import Manifest

PLAYED, REAL = ("aws", "aws-native"), ("eks", "kubernetes")
# pulumi-eks asks the AWS CLI for its version, and its kubeconfig asks for a token. Here the answer is a certificate.
_AWS = """#!/bin/sh
case "$*" in
--version) echo "aws-cli/2.31.0 Python/3.13.7 Linux/6.1 exe/x86_64" ;;
*"eks get-token"*) exec cat {credential} ;;
*) echo "this aws knows no $*" >&2; exit 2 ;;
esac
"""


def lacking() -> str:
    """What this machine lacks for it, and how to get it. Empty if nothing is missing."""
    if shutil.which("pulumi") is None:
        return NO_CLI
    missing = [package for package in REAL if not _has_plugin(package)]
    commands = [f"pulumi plugin install resource {package} {_version(package)}" for package in missing]
    return f"the real engine needs the real plugins: {'; '.join(commands)}" if missing else ""


def _has_plugin(package: str) -> bool:
    installed = plugins_folder() / f"resource-{package}-v{_version(package)}"
    return shutil.which(f"pulumi-resource-{package}") is not None or installed.is_dir()


def _version(package: str) -> str:
    return metadata.version(f"pulumi-{package}")


class PlayedAccount(Account):
    """The embedded account, with a control plane as its EKS cluster and nodes for its HyperPod cluster."""

    def __init__(self, config: Config, plane: ControlPlane) -> None:
        super().__init__(config.region.name)
        self._plane, self._config = plane, config

    def charts_installed(self) -> bool:
        """Whether Helm lists the charts as installed."""
        return RELEASE_NAME in self._plane.kubectl.helm("list", "-q", "-n", NAMESPACE).split()

    def create(
        self, type_token: str, name: str, inputs: Mapping[str, Any], *, at: float = 0.0, ready_at: float = 0.0
    ) -> tuple[str, dict[str, Any]]:
        """Like the account's. An EKS cluster is this machine's; a HyperPod cluster's nodes join it. Raises Refused."""
        resource_id, outputs = super().create(type_token, name, inputs, at=at, ready_at=ready_at)
        if type_token == EKS_CLUSTER:
            certificate = base64.b64encode(self._plane.ca_certificate.read_bytes()).decode()
            authority = {"data": certificate}
            outputs |= {
                "endpoint": self._plane.url,
                "certificateAuthority": authority,
                "certificateAuthorities": [authority],
            }
        elif type_token == HYPERPOD_CLUSTER:
            arrive(self._plane, self._config)
        return resource_id, outputs

    def delete(self, type_token: str, resource_id: str) -> None:
        """Like the account's. A HyperPod cluster's nodes are deleted with it. Raises Refused."""
        super().delete(type_token, resource_id)
        if type_token == HYPERPOD_CLUSTER:
            depart(self._plane, self._config)


@dataclass(frozen=True)
class OnRealEngine:
    """Deploys and destroys the stack with `pulumi`. ``declared`` is what belongs to it."""

    stack: RealStack
    account: Account
    declared: Declared

    def bring_up(self) -> int:
        """Preview, up, and a preview without changes. Returns the object count. Raises DeployFailed."""
        try:
            self.stack.run("preview")
            self.stack.run("up")
            self.stack.run("preview")
            self.stack.require_unchanged("a preview after `up`")
        except EngineFailure as failure:
            raise DeployFailed(str(failure)) from failure
        return self.declared.deployer.count(self.declared.plan.steps)

    def take_down(self) -> list[str]:
        """Destroy. Returns the errors and the leftovers in the account."""
        try:
            self.stack.run("destroy")
        except EngineFailure as failure:
            return [str(failure)]
        return [f"left in the account: {one}" for one in self.account.leftovers()]

    def kept(self) -> list[Manifest]:
        """Objects that may remain after ``take_down`` until the cluster is deleted."""
        return self.declared.kept()


@contextmanager
def on_real_engine(
    project: Project, config: Config, plane: ControlPlane, declared: Declared, on_line: OnLine
) -> Iterator[OnRealEngine]:
    """The stack on the real engine while the context lasts. Raises StackFailed if it cannot begin."""
    charts = {
        str(Path(step.release.chart)): declared.deployer.charts.find(step.release)
        for step in declared.plan.steps
        if step.release
    }
    around = Surroundings(packages=PLAYED, links=charts, path=[_aws(plane)])
    with PlayedAccount(config, plane) as account, ExitStack() as context:
        try:
            stack = context.enter_context(real_stack(project, account, on_line, around))
        except EngineFailure as failure:
            raise StackFailed(str(failure)) from failure
        yield OnRealEngine(stack, account, declared)


def _aws(plane: ControlPlane) -> Path:
    """A folder with an `aws` command that knows the control plane's administrator."""
    certificate, key = plane.client("kubernetes-admin", "system:masters")
    credential = plane.folder / "credential.json"
    credential.touch(mode=0o600)
    status = {"clientCertificateData": certificate.read_text(), "clientKeyData": key.read_text()}
    credential.write_text(
        json.dumps({"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": status})
    )
    folder = plane.folder / "bin"
    folder.mkdir()
    (folder / "aws").write_text(_AWS.format(credential=credential))
    (folder / "aws").chmod(0o700)
    return folder
