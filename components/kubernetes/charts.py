"""The Helm charts that the program installs from ``charts/``: their sources and expected contents.

AWS publishes the HyperPod chart only as a folder of a git repository, without a package whose digest could be checked:
the folder is pinned file by file, and the packaged charts that it needs by their digests. ``hyperpod download charts``
downloads and checks them.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pulumi

from ..schema.problems import ConfigError, Problem
from .keys import KubernetesKeys

FOLDER = Path("charts")
BRING = "hyperpod download charts"
# Set only by the rehearsal, which installs a stand-in where the charts are missing.
UNVERIFIED_VARIABLE, UNVERIFIED = "HYPERPOD_CHARTS", "unverified"


@dataclass(frozen=True, kw_only=True)
class Dependency:
    """A packaged chart that another chart needs, as ``charts/NAME-VERSION.tgz`` in its folder."""

    name: str
    version: str
    url: str
    sha256: str

    @property
    def file(self) -> str:
        """Its path in the chart's folder."""
        return f"charts/{self.name}-{self.version.removeprefix('v')}.tgz"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart that is a ``folder`` of an archive of its repository.

    ``sha256`` is ``tree_digest`` of that folder without ``left_out``: files that it must not contain.
    """

    name: str
    version: str
    archive: str
    folder: str
    sha256: str
    dependencies: tuple[Dependency, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Its path, relative to the project."""
        return FOLDER / self.name


HYPERPOD_COMMIT = "011ca927123e02b35a399935bbb3ab1905fe33c7"
HYPERPOD = Chart(
    name="HyperPodHelmChart",
    version="0.1.0",
    archive=f"https://codeload.github.com/aws/sagemaker-hyperpod-cli/tar.gz/{HYPERPOD_COMMIT}",
    folder="helm_chart/HyperPodHelmChart",
    sha256="05eea797a6559368c5d81dd50fe6a06ef1ce4e46404d0e1eb2c3e27c13dd6de9",
    dependencies=(
        Dependency(
            name="cert-manager",
            version="v1.18.2",
            url="https://charts.jetstack.io/charts/cert-manager-v1.18.2.tgz",
            # The digest that six public configurations for NixOS have for that address or its version.
            sha256="daddf7af7b1f0eaaa10edd790aefa0bd8c2b07830febf659460d843217f5b3c5",
        ),
        Dependency(
            name="nvidia-device-plugin",
            version="0.16.1",
            url="https://nvidia.github.io/k8s-device-plugin/stable/nvidia-device-plugin-0.16.1.tgz",
            # The index of that repository (2025-10-21).
            sha256="a77b4e81fd56a11e39536500a7a6538899b952c4b4370200280bce313dffda6a",
        ),
        Dependency(
            name="aws-efa-k8s-device-plugin",
            version="v0.5.20",
            url="https://aws.github.io/eks-charts/aws-efa-k8s-device-plugin-v0.5.20.tgz",
            # The index of that repository (2025-12-25).
            sha256="252967e2083799987d576ac86986b3316ce350dd1da2d07a8b83b5c4288fbcf4",
        ),
    ),
    # An older build next to the folder of the same chart: Helm uses either of them, and not always the same.
    left_out=("charts/health-monitoring-agent-0.1.0.tgz",),
)
KUEUE = Chart(
    name="kueue",
    version="0.14.8",
    archive="https://codeload.github.com/kubernetes-sigs/kueue/tar.gz/refs/tags/v0.14.8",
    folder="charts/kueue",
    sha256="e711b4601f0a1738515b3f5cee1f86d40acb4cda2b7fc9d614754f3961333d28",
)


def needed(settings: KubernetesKeys) -> tuple[Chart, ...]:
    """Return the charts that this configuration installs."""
    if settings.orchestrator != "eks":
        return ()
    return (HYPERPOD, KUEUE) if settings.charts.queues == "kueue" else (HYPERPOD,)


def require(settings: KubernetesKeys) -> None:
    """Refuse to continue without the charts. Raises ConfigError with all their problems."""
    problems = [
        Problem(key=str(chart.path), what=fault, fix=f"bring it with `{BRING}`")
        for chart in needed(settings)
        for fault in faults(chart, chart.path)
    ]
    if problems and os.environ.get(UNVERIFIED_VARIABLE) == UNVERIFIED:
        pulumi.log.warn(
            f"{problems[0].key}: {problems[0].what}; a stand-in plays its part. Before the first `pulumi up`: `{BRING}`"
        )
    elif problems:
        raise ConfigError(problems)


def tree_digest(folder: Path, without: frozenset[str] = frozenset()) -> str:
    """Return a SHA-256 over every file's path and content, sorted by path, without modes and times."""
    digest = hashlib.sha256()
    for name in sorted(_files(folder)):
        if name not in without:
            digest.update(f"{name}\0{hashlib.sha256((folder / name).read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def faults(chart: Chart, folder: Path) -> list[str]:
    """Yield the problems of a chart in ``folder``; none if it matches the pin."""
    if not (folder / "Chart.yaml").is_file():
        return ["the chart is not there"]
    found = [f"{name} is there besides the folder of that chart" for name in chart.left_out if (folder / name).exists()]
    apart = frozenset(dependency.file for dependency in chart.dependencies) | frozenset(chart.left_out)
    if tree_digest(folder, apart) != chart.sha256:
        found.append(f"the content is not that of version {chart.version} at its pinned commit")
    return found + [fault for dependency in chart.dependencies for fault in _dependency_faults(dependency, folder)]


def _files(folder: Path) -> Iterator[str]:
    return (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _dependency_faults(dependency: Dependency, folder: Path) -> Iterator[str]:
    path = folder / dependency.file
    if not path.is_file():
        yield f"{dependency.file} is missing"
    elif hashlib.sha256(path.read_bytes()).hexdigest() != dependency.sha256:
        yield f"the content of {dependency.file} is not what was published"
