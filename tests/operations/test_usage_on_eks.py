"""``usage`` on EKS: what the metrics of pods add up to, asked of the stack's own workspace day by day."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from components.catalogue.accelerators import lookup
from operations.failures import Exit
from operations.spending import usage
from tests.operations.aws import StubbedAws, ended, ended_json, stack
from tests.operations.workspace import ARN, Workspace

SETTINGS = (
    f"hyperpod:observability={json.dumps({'prometheus': ARN})}",
    f"hyperpod:teams={json.dumps([{'name': 'vision'}, {'name': 'speech'}])}",
    f"hyperpod:charts={json.dumps({'queues': 'task-governance'})}",
)
P5, P4D = "ml.p5.48xlarge", "ml.p4d.24xlarge"


def sample(namespace: str, instance_type: str, hours: str) -> tuple[dict[str, str], str]:
    return {"namespace": namespace, "instance_type": instance_type}, hours


@pytest.fixture
def measured(aws: StubbedAws, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace of eks-gpu that measured the same every day."""
    workspace.values = [
        sample("hyperpod-ns-vision", P5, "16"),
        sample("hyperpod-ns-vision", P4D, "8"),
        sample("kubeflow", P5, "0.5"),
    ]
    workspace.described(aws)
    target = stack(aws, "eks-gpu", *SETTINGS)
    monkeypatch.setattr("operations.target.load", lambda name, settings=None: target)
    return workspace


def test_days_add_up_to_hours_and_dollars_by_team_and_type(measured: Workspace) -> None:
    since = datetime.now(UTC) - timedelta(days=2, hours=3)
    found = ended_json(Exit.GOOD, "usage", "eks-gpu", "--since", f"{since:%Y-%m-%dT%H:%M}")
    rates = {kind: (lookup(kind).hourly_usd or 0.0) / 8 for kind in (P5, P4D)}
    assert [(use["account"], use["instance_type"], use["gpu_hours"], use["jobs"]) for use in found["uses"]] == [
        ("vision", P5, 48.0, None),
        ("vision", P4D, 24.0, None),
        ("kubeflow", P5, 1.5, None),
    ]
    assert [use["usd"] for use in found["uses"]] == [
        round(48 * rates[P5], 2),
        round(24 * rates[P4D], 2),
        round(1.5 * rates[P5], 2),
    ]
    first, second, last = map(int, measured.times)
    assert second - first == 86_400
    assert timedelta(hours=2) < timedelta(seconds=last - second) < timedelta(hours=4)
    whole, again, rest = measured.asked
    assert whole == again == usage.held("eks-gpu", 86_400)
    assert rest == usage.held("eks-gpu", last - second)


def test_people_get_a_table_and_a_picture(measured: Workspace, tmp_path: Path) -> None:
    since = datetime.now(UTC) - timedelta(hours=1)
    words = ("--since", f"{since:%Y-%m-%dT%H:%M}", "--picture", str(tmp_path / "use.svg"))
    out, _ = ended(Exit.GOOD, "usage", "eks-gpu", *words)
    assert "24.5 accelerator hours" in out
    assert [line.split()[:3] for line in out.splitlines()[1:3]] == [["team", "type", "hours"], ["vision", P5, "16.0"]]
    assert "Kubernetes keeps no record of who started them" in out
    assert "<svg" in (tmp_path / "use.svg").read_text()


def test_a_type_without_a_price_makes_no_dollars(aws: StubbedAws) -> None:
    config = stack(aws, "eks-gpu").config
    newer = {"metric": {"namespace": "training", "instance_type": "ml.p7.48xlarge"}, "value": [0, "8"]}
    found = usage.read_metrics(config, [{"result": [newer]}], "x")
    assert (found.usd, found.gpu_hours) == (None, 8.0)
    assert any("price of ml.p7.48xlarge is unknown" in note for note in found.notes)
