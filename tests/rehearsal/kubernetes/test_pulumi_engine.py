"""The real engine with a control plane: what it needs, and what the account answers."""

import base64
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rehearsal.engines.deployment import destroy, up
from rehearsal.kubernetes import karpenter, pulumi_engine
from rehearsal.kubernetes.certificates import Authority
from rehearsal.kubernetes.pulumi_engine import PlayedAccount, lacking
from tests.support import config, one, project


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, on a machine where nothing is installed yet."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "pulumi"))
    return folder


def install(*files: Path) -> None:
    for file in files:
        file.touch(mode=0o755)


def test_without_a_cli_it_says_where_to_get_one(programs: Path) -> None:
    assert "https://www.pulumi.com/docs/install/" in lacking()


def test_without_plugins_it_says_the_commands_that_install_them(programs: Path) -> None:
    install(programs / "pulumi", programs / "pulumi-resource-eks")
    assert "pulumi plugin install resource kubernetes 4." in lacking()
    assert "eks" not in lacking()


def test_a_plugin_on_path_and_an_installed_one_are_as_good(programs: Path, tmp_path: Path) -> None:
    install(programs / "pulumi", programs / "pulumi-resource-eks")
    (tmp_path / "pulumi/plugins" / f"resource-kubernetes-v{pulumi_engine._version('kubernetes')}").mkdir(parents=True)
    assert lacking() == ""


@pytest.fixture
def plane(tmp_path: Path) -> Any:
    """A control plane without its programs: certificates, an address, and Helm's list of releases."""
    authority, installed = Authority(tmp_path), {"hyperpod-dependencies"}
    kubectl = SimpleNamespace(helm=lambda *words: "\n".join(installed))
    return SimpleNamespace(
        folder=tmp_path,
        client=authority.client,
        ca_certificate=authority.certificate,
        url="https://127.0.0.1:6443",
        kubectl=kubectl,
        installed=installed,
    )


def test_the_aws_that_it_brings_gives_the_administrators_certificate_and_nothing_else(plane: Any) -> None:
    aws = pulumi_engine._aws(plane) / "aws"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([aws, *words], capture_output=True, text=True)

    assert run("--version").stdout.startswith("aws-cli/2.")
    status = json.loads(run("--region", "us-west-2", "eks", "get-token", "--cluster-name", "a").stdout)["status"]
    assert status["clientCertificateData"].startswith("-----BEGIN CERTIFICATE-----")
    assert run("s3", "ls").returncode == 2
    assert (plane.folder / "credential.json").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_the_clusters_endpoint_is_the_control_plane_and_nodes_come_and_go_with_hyperpods(
    plane: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(karpenter, "join", lambda kubectl, nodes: said.append(f"{len(nodes)} join"))
    monkeypatch.setattr(karpenter, "leave", lambda kubectl, nodes: said.append(f"{len(nodes)} leave"))
    with PlayedAccount(config("eks-gpu"), plane) as account:
        deployment = up(project("eks-gpu"), account)
        assert not deployment.failure
        kubeconfig = json.loads(str(deployment.outputs["kubeconfig"]))["clusters"][0]["cluster"]
        assert kubeconfig["server"] == plane.url
        assert base64.b64decode(kubeconfig["certificate-authority-data"]) == plane.ca_certificate.read_bytes()
        # Two workers, and three for the cluster itself.
        assert said == ["5 join"]
        assert destroy(deployment.state, account) == []
        assert said == ["5 join", "5 leave"]


@pytest.mark.slow
def test_hyperpod_is_refused_where_helm_knows_no_release(plane: Any) -> None:
    plane.installed.clear()
    with PlayedAccount(config("eks-gpu"), plane) as account:
        deployment = up(project("eks-gpu"), account)
        assert deployment.failure.startswith("hyperpod-cluster ")
        assert "dependencies are not installed" in deployment.failure
        assert one(deployment.state, "eks-chart-release")
