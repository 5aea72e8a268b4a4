"""``scale``: the number of nodes in a group changes through the configuration, and nothing else does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from operations import target as targets
from operations.cluster import scale
from operations.deployment import deploy
from operations.failures import Exit, Failure
from operations.target import Target
from rehearsal.verb_engine import EmbeddedEngine
from tests.operations.aws import StubbedAws, ended, run, stack
from tests.support import ROOT


@pytest.mark.slow
def test_scaling_in_the_embedded_account_changes_the_cluster_and_never_the_file_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    out, err = ended(Exit.GOOD, "scale", "dev", "workers", "4", "--rehearse", "--json")
    report = json.loads(out)
    assert report["counts"]["update"] == 1
    assert set(report["counts"]) == {"update", "same"}
    assert "workers: 2 to 4 nodes, $11.37 to $21.80 an hour" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("wrokers", "4"), "groups here: workers"),
        (("controller", "2"), "controller cannot be scaled"),
        (("workers", "100000"), "hyperpod:"),
    ],
)
def test_a_size_that_cannot_be_is_refused_before_anything_happens(words: tuple[str, ...], said: str) -> None:
    _, err = ended(Exit.BAD_INPUT, "scale", "dev", *words, "--rehearse")
    assert said in err


def test_a_group_has_no_less_than_no_node(aws: StubbedAws) -> None:
    with pytest.raises(Failure, match="-1 nodes"):
        scale.scaled(stack(aws), "workers", -1)


def test_a_group_that_comes_from_the_size_is_written_out(aws: StubbedAws) -> None:
    target = stack(aws, "dev", "hyperpod:workers=[]", "hyperpod:clusterName=x")
    name = target.config.worker_groups[0].name
    values = scale.scaled(target, name, 3).values
    assert values == {
        "hyperpod:workers[0].name": "workers",
        "hyperpod:workers[0].instanceType": "ml.p5.48xlarge",
        "hyperpod:workers[0].count": "3",
    }
    assert scale.scaled(stack(aws), "workers", 3).values == {"hyperpod:workers[0].count": "3"}


def test_a_group_of_a_training_plan_saves_nothing_by_fewer_nodes(aws: StubbedAws) -> None:
    # SageMaker Developer Guide, "Reserve Flexible Training Plans": paid upfront, and final.
    plan = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/mine"
    reserved = {"name": "workers", "instanceType": "ml.p5.48xlarge", "count": 2, "trainingPlanArn": plan}
    target = stack(aws, "dev", f"hyperpod:workers={json.dumps([reserved])}")
    assert "paid in advance" in scale.scaled(target, "workers", 0).money
    assert scale.scaled(stack(aws), "workers", 4).money == "$11.37 to $21.80 an hour"


def test_what_is_not_known_of_the_price_is_said_before_scaling(aws: StubbedAws) -> None:
    group = {"name": "workers", "instanceType": "ml.g7e.48xlarge", "count": 0}
    target = stack(aws, "dev", f"hyperpod:workers={json.dumps([group])}")
    money = scale.scaled(target, "workers", 2).money
    assert money.startswith("now $0.93 an hour; then at least $1.")
    assert "price of 2 x ml.g7e.48xlarge unknown; about $" in money


def test_scaling_below_the_minimum_lowers_the_minimum_too(tmp_path: Path) -> None:
    workers = [{"name": "workers", "instanceType": "ml.g5.16xlarge", "count": 4, "minCount": 3}]
    values = {"aws:region": "us-west-2", "hyperpod:workers": workers}
    (tmp_path / "Pulumi.yaml").write_text((ROOT / "Pulumi.yaml").read_text())
    (tmp_path / "Pulumi.dev.yaml").write_text(json.dumps({"config": values}))
    target = targets.load("dev", [], tmp_path)
    shrunk = scale.scaled(target, "workers", 2).values
    assert shrunk == {"hyperpod:workers[0].count": "2", "hyperpod:workers[0].minCount": "2"}
    assert scale.scaled(target, "workers", 6).values == {"hyperpod:workers[0].count": "6"}


@pytest.mark.slow
def test_a_refused_scaling_leaves_the_configuration_as_it_was(
    monkeypatch: pytest.MonkeyPatch, project: Callable[..., Target]
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    chosen = project()
    seen: list[str] = []
    monkeypatch.setattr(targets, "load", lambda stack, overrides=None, root=None: chosen)
    monkeypatch.setattr(deploy, "require_kept", _refuse)
    for verb in ("configure", "restore"):
        real = getattr(EmbeddedEngine, verb)

        def noted(self: EmbeddedEngine, *values: Any, real: Any = real, verb: str = verb) -> None:
            real(self, *values)
            seen.append(f"{verb} {self._project.config['hyperpod:workers']}")

        monkeypatch.setattr(EmbeddedEngine, verb, noted)
    _, err = ended(Exit.FAILED, "scale", "dev", "workers", "5", "--rehearse")
    assert "the file system would go" in err
    assert '"count": 5' in seen[0]
    assert seen[1] == f"restore {chosen.project.config['hyperpod:workers']}"


def _refuse(planned: object) -> None:
    raise Failure("the file system would go")


def test_what_if_names_limits_quotas_and_dollars_and_changes_nothing() -> None:
    code, out, _ = run("scale", "slurm-gpu", "workers", "1000", "--what-if", "--json")
    found = json.loads(out)
    assert code == Exit.FAILED
    assert [limit["name"] for limit in found["limits"] if limit["exceeded"]] == ["network-interfaces"]
    assert {quota["needed"] for quota in found["quotas"]} == {1000, 1001, 32011}
    assert found["cost"]["hourly_usd"] > 1000 * 50
    assert found["fsx_mbps"] == 300
    # 1,000 x 10 GiB at 100 Gbps.
    assert round(found["image_pull_seconds"]) == 859
    out, _ = ended(Exit.GOOD, "scale", "slurm-gpu", "workers", "100", "--what-if")
    assert "155 nodes" in out
    assert "each of 800 accelerators" in out
