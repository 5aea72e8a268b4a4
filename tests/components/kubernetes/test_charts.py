"""Charts are installed only as the project pins them, and their values leave nothing to guess."""

import hashlib
import io
import os
import tarfile
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest

from components.catalogue.regions import REGIONS
from components.config import Charts, ConfigError
from components.kubernetes import charts
from components.kubernetes.charts import (
    HYPERPOD,
    KUEUE,
    UNVERIFIED,
    UNVERIFIED_VARIABLE,
    Chart,
    Dependency,
    faults,
    tree_digest,
)
from components.kubernetes.helm import HyperPodChartArgs, chart_values
from tests.support import config


def package(path: Path, name: str, version: str) -> None:
    """A packaged chart with nothing in it."""
    text = f"apiVersion: v2\nname: {name}\nversion: {version}\n".encode()
    member = tarfile.TarInfo(f"{name}/Chart.yaml")
    member.size = len(text)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(member, io.BytesIO(text))


def pinned(place: Path) -> tuple[Chart, Path]:
    """A small chart as pinned, and where it is."""
    folder = place / "charts" / "small"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: small\nversion: 1.0.0\n")
    (folder / "templates" / "one.yaml").write_text("kind: ConfigMap\n")
    dependency = folder / "charts" / "other-2.0.0.tgz"
    package(dependency, "other", "v2.0.0")
    digest = hashlib.sha256(dependency.read_bytes()).hexdigest()
    chart = Chart(
        name="small",
        version="1.0.0",
        archive="https://example.com/small.tar.gz",
        folder="charts/small",
        sha256=tree_digest(folder, frozenset(["charts/other-2.0.0.tgz"])),
        dependencies=(Dependency(name="other", version="v2.0.0", url="https://example.com/other.tgz", sha256=digest),),
        left_out=("charts/old.tgz",),
    )
    return chart, folder


def test_what_the_pin_says_has_no_fault(tmp_path: Path) -> None:
    assert faults(*pinned(tmp_path)) == []


def spoil(folder: Path, what: str) -> None:
    match what:
        case "changed file":
            (folder / "templates" / "one.yaml").write_text("kind: Secret\n")
        case "added file":
            (folder / "templates" / "two.yaml").write_text("kind: Secret\n")
        case "removed file":
            (folder / "templates" / "one.yaml").unlink()
        case "no dependency":
            (folder / "charts" / "other-2.0.0.tgz").unlink()
        case "other version":
            package(folder / "charts" / "other-2.0.0.tgz", "other", "3.0.0")
        case "no package":
            (folder / "charts" / "other-2.0.0.tgz").write_text("<html>not found</html>")
        case "left-out file":
            package(folder / "charts" / "old.tgz", "old", "1.0.0")
        case "no chart":
            (folder / "Chart.yaml").unlink()


BAD = (
    "changed file",
    "added file",
    "removed file",
    "no dependency",
    "other version",
    "no package",
    "left-out file",
    "no chart",
)


def told(what: str) -> list[str]:
    """Everything that is said of a chart to which that happened."""
    with TemporaryDirectory() as place, chdir(place), patch.dict(os.environ):
        chart, folder = pinned(Path())
        spoil(folder, what)
        os.environ.pop(UNVERIFIED_VARIABLE, None)
        with patch.object(charts, "needed", lambda _: (chart,)), pytest.raises(ConfigError) as refused:
            charts.require(config("eks-gpu").settings)
        return [str(problem) for problem in refused.value.problems]


def test_without_the_charts_nothing_is_created_and_the_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(UNVERIFIED_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match="nothing was created") as refused:
        charts.require(config("eks-gpu").settings)
    assert [problem.key for problem in refused.value.problems] == ["charts/HyperPodHelmChart", "charts/kueue"]
    assert all("hyperpod download charts" in problem.fix for problem in refused.value.problems)


def test_slurm_needs_no_chart_and_a_cluster_without_queues_only_hyperpods() -> None:
    assert charts.needed(config("slurm-gpu").settings) == ()
    assert charts.needed(config("eks-gpu", charts={"queues": "none"}).settings) == (HYPERPOD,)


def test_the_rehearsal_says_that_a_stand_in_plays_the_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(UNVERIFIED_VARIABLE, UNVERIFIED)
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", said.append)
    charts.require(config("eks-gpu").settings)
    assert "a stand-in plays its part" in said[0]


def values(region: str, accelerator: str = "gpu", **switches: Any) -> dict[str, Any]:
    return chart_values(
        HyperPodChartArgs(region=REGIONS[region], accelerator=accelerator, charts=Charts.model_validate(switches))
    )


def test_a_pins_version_is_the_one_in_its_address() -> None:
    for dependency in HYPERPOD.dependencies:
        assert dependency.url.endswith(f"/{dependency.name}-{dependency.version}.tgz"), dependency.name
    assert KUEUE.archive.endswith(f"/v{KUEUE.version}")


# The map of accounts in the pinned chart's health-monitoring-agent/templates/_helpers.tpl lacks these.
_WITHOUT_AGENT = ("ap-northeast-2", "ap-south-2", "us-gov-east-1", "us-gov-west-1")


@pytest.mark.parametrize("region", REGIONS)
def test_every_regional_image_is_named_in_its_own_region_and_partition(region: str) -> None:
    found = values(region)
    suffix = REGIONS[region].dns_suffix
    efa = found["aws-efa-k8s-device-plugin"]["image"]["repository"]
    assert f".dkr.ecr.{region}.{suffix}/eks/" in efa
    agent = found["health-monitoring-agent"]
    if agent["enabled"]:
        assert f".dkr.ecr.{region}.{suffix}/" in agent["hmaimage"]
        assert agent["region"] == region
    else:
        assert region in _WITHOUT_AGENT


def test_device_plugins_tolerate_the_groups_taints_in_addition_to_the_charts_own() -> None:
    taint = {"key": "dedicated", "value": "x", "effect": "NoExecute"}
    workers = [
        {"name": "dedicated", "instanceType": "ml.p5.48xlarge", "taints": [taint]},
        {"name": "open", "instanceType": "ml.p5.48xlarge"},
    ]
    for plugin, own in (
        ("nvidia-device-plugin", "nvidia.com/gpu"),
        ("aws-efa-k8s-device-plugin", "aws.amazon.com/efa"),
    ):
        groups = config("eks-gpu", workers=workers).worker_groups
        found = chart_values(
            HyperPodChartArgs(region=REGIONS["us-west-2"], accelerator="gpu", charts=Charts(), groups=groups)
        )[plugin]["tolerations"]
        assert {"key": "dedicated", "operator": "Exists", "effect": "NoExecute"} in found
        assert own in [one["key"] for one in found]
        # Without taints the chart's own list stays as it is.
        assert "tolerations" not in values("us-west-2")[plugin]


def test_efas_plugin_runs_on_the_types_of_the_stack_that_have_devices_and_on_no_others() -> None:
    """aws/sagemaker-hyperpod-cli, issue 367: elsewhere it ends, and is started again without end."""
    types = ["ml.g5.48xlarge", "ml.p5.48xlarge", "ml.g5.16xlarge", "ml.p5.48xlarge", "ml.m5.xlarge"]
    workers = [{"name": f"group-{n}", "instanceType": one, "count": 2} for n, one in enumerate(types)]

    def plugin(*chosen: dict[str, Any]) -> Any:
        groups = config("eks-gpu", workers=list(chosen)).worker_groups
        args = HyperPodChartArgs(region=REGIONS["us-west-2"], accelerator="gpu", charts=Charts(), groups=groups)
        return chart_values(args)["aws-efa-k8s-device-plugin"]

    found = plugin(*workers)
    assert found["devicePlugin"]["enabled"] is True
    assert found["supportedInstanceLabels"] == {"values": ["ml.g5.48xlarge", "ml.p5.48xlarge"]}
    # An empty list would be no valid affinity.
    without = plugin(workers[2], workers[4])
    assert (without["devicePlugin"]["enabled"], "supportedInstanceLabels" in without) == (False, False)


SWITCHES = {
    "mpiOperator": "mpi-operator",
    "trainingOperator": "trainingOperators",
    "healthMonitoring": "health-monitoring-agent",
    "deepHealthCheck": "deep-health-check",
    "jobAutoRestart": "job-auto-restart",
    "hyperpodTrainingOperator": "cert-manager",
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_switch_turns_its_part_of_the_chart_on_and_off(switch: str) -> None:
    states = [values("us-west-2", "gpu", **{switch: state})[SWITCHES[switch]]["enabled"] for state in (True, False)]
    assert states == [True, False]
