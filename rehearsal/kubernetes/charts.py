"""Finds the charts of releases on this machine, or a stand-in for the HyperPod chart."""

import shutil
from pathlib import Path

from components.common.documents import dump, load

from .binaries import folder
from .kubectl import Manifest
from .objects import Release

_ROOT = Path(__file__).parents[2]
_STAND_IN = Path(__file__).with_name("stand_in_chart")
_HYPERPOD, _KUEUE = "HyperPodHelmChart", "kueue"
# The HyperPod chart's own MPIJob schema knows these volumes and no others.
_MPI_VOLUMES = ("configMap", "emptyDir", "fc", "hostPath", "persistentVolumeClaim", "secret", "name")


class ChartMissing(Exception):
    """A chart that a release names is not on this machine."""


class Charts:
    """Finds charts. Charts that have to be assembled are in ``workspace``.

    ``played``: "hyperpod" if the real HyperPod chart is used, "stand-in" if ours takes its place.
    """

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self.played = "hyperpod" if self._hyperpod().is_dir() else "stand-in"

    def find(self, release: Release) -> Path:
        """The folder of a release's chart. Raises ChartMissing."""
        name = Path(release.chart).name
        if name == _HYPERPOD and self.played == "stand-in":
            return self._stand_in()
        local = _ROOT / release.chart
        if local.exists():
            return local
        if name == _KUEUE and (built := folder("kueue-chart")):
            return built
        raise ChartMissing(f"release {release.name}: the chart {release.chart} is not on this machine")

    def _hyperpod(self) -> Path:
        return _ROOT / "charts" / _HYPERPOD

    def _stand_in(self) -> Path:
        """Our stand-in chart, with the jobs' real schemas from the operators' Go modules."""
        chart = self._workspace / "hyperpod-stand-in"
        if chart.is_dir():
            return chart
        training, mpi = folder("training-operator-crds"), folder("mpi-operator-crds")
        assert training
        assert mpi
        shutil.copytree(_STAND_IN, chart)
        (chart / "crds").mkdir()
        for path in sorted(training.glob("kubeflow.org_*jobs.yaml")):
            # The MPI operator installs its own, newer MPIJob schema.
            if "mpijobs" not in path.name:
                shutil.copy(path, chart / "crds")
        schema = load((mpi / "kubeflow.org_mpijobs.yaml").read_text())
        _prune_volumes(schema)
        (chart / "templates" / "mpijob-crd.yaml").write_text(dump(schema))
        return chart


def _prune_volumes(schema: Manifest) -> None:
    """Reduce a pod's volumes to those in the HyperPod chart's schema, so that strict validation refuses others."""
    for version in schema["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        replica = spec["properties"]["mpiReplicaSpecs"]["additionalProperties"]
        volumes = replica["properties"]["template"]["properties"]["spec"]["properties"]["volumes"]["items"]
        volumes["properties"] = {kind: volumes["properties"][kind] for kind in _MPI_VOLUMES}
