"""``usage`` and ``accounts``: what Slurm's record of jobs adds up to, and what the controller is told to set."""

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore.exceptions import NoCredentialsError
from hyperpod_node.facts import parameters
from hyperpod_node.facts.model import Accounting

from components.catalogue.accelerators import lookup
from operations.cluster import slurm_accounts
from operations.failures import Exit, Failure
from operations.spending import usage
from tests.operations.aws import StubbedAws, controller_says, ended, ended_json, stack, with_nodes
from tests.operations.workspace import ARN, Workspace

SLURM = ('slurm={"accounting":{},"accounts":[{"name":"lab","users":["ada"],"maxGpus":4}],"qos":[{"name":"late"}]}',)
# As sacct prints them: a job that returned to the queue is there twice, a CPU job has no GPUs, one has not begun.
SACCT = """ada|lab|1|ip-10-1-1-[1-2]|billing=2,cpu=2,gres/gpu=2,node=2|5400
ada|lab|1|ip-10-1-1-1|billing=1,cpu=1,gres/gpu=1,node=1|3600
bob|guests|2|ip-10-1-1-2|billing=1,cpu=1,gres/gpu:a10g=1,gres/gpu=1,node=1|1800
bob|guests|3|ip-10-1-1-2|cpu=4,node=1|7200
bob|guests|4|None assigned||0
"""
PRICE = lookup("ml.g5.16xlarge").hourly_usd or 0.0


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the controller prints, to change; and what it was asked."""
    return controller_says(monkeypatch, SACCT)


def test_hours_and_dollars_are_those_of_the_accelerators_that_jobs_held(said: dict[str, str], aws: StubbedAws) -> None:
    with_nodes(aws)
    found = ended_json(Exit.GOOD, "usage", "dev", "--since", "2026-11-01")
    assert [(use["account"], use["user"], use["jobs"], use["gpu_hours"]) for use in found["uses"]] == [
        ("lab", "ada", 1, 4.0),
        ("guests", "bob", 3, 0.5),
    ]
    assert [use["usd"] for use in found["uses"]] == [round(4 * PRICE, 2), round(PRICE / 2, 2)]
    assert found["usd"] == sum(use["usd"] for use in found["uses"])
    assert "--starttime=2026-11-01 " in said["asked"]
    assert "--duplicates" in said["asked"], "a job that returned to the queue has used what it had before"


def test_people_get_a_table_and_a_picture(said: dict[str, str], aws: StubbedAws, tmp_path: Path) -> None:
    with_nodes(aws)
    out, _ = ended(Exit.GOOD, "usage", "dev", "--picture", str(tmp_path / "new/use.svg"))
    assert "4.5 accelerator hours" in out
    assert out.splitlines()[2].split()[:4] == ["lab", "ada", "1", "4.0"]
    drawn = (tmp_path / "new/use.svg").read_text()
    assert "<svg" in drawn


def test_a_job_on_nodes_that_are_gone_is_told_of_where_their_price_is_not_known() -> None:
    line = "ada|lab|1|ip-10-9-9-9|gres/gpu=8|3600"
    one = stack(StubbedAws(), "slurm-gpu").config
    assert len(usage.read(one, [], [line], "x").notes) == 1
    groups = [{"name": "a", "instanceType": "ml.p5.48xlarge"}, {"name": "b", "instanceType": "ml.p4d.24xlarge"}]
    found = usage.read(stack(StubbedAws(), "slurm-gpu", f"workers={json.dumps(groups)}").config, [], [line], "x")
    assert "8.0 hours on nodes that are gone" in found.notes[1]
    assert found.usd == pytest.approx(lookup("ml.p5.48xlarge").hourly_usd, abs=0.01)


def test_trainium_chips_count(aws: StubbedAws) -> None:
    config = stack(aws, "slurm-trainium").config
    found = usage.read(config, [], ["ada|lab|1|ip-1|cpu=1,gres/neuron=16,node=1|3600"], "x")
    assert found.gpu_hours == 16
    assert found.usd == pytest.approx(lookup("ml.trn1.32xlarge").hourly_usd, abs=0.01)


def test_an_estimate_is_said_to_be_one_and_an_unknown_price_makes_no_dollars(aws: StubbedAws, tmp_path: Path) -> None:
    lines = ["ada|lab|1|ip-1|gres/gpu=8,node=1|3600", "bob|lab|2|ip-1|cpu=1|60"]

    def used(kind: str) -> usage.Usage:
        group = json.dumps([{"name": "w", "instanceType": kind, "count": 2}])
        return usage.read(stack(aws, "slurm-gpu", f"workers={group}").config, [], lines, "x")

    estimated = used("ml.g7e.48xlarge")
    assert estimated.usd == pytest.approx(33.14, abs=0.01)
    assert any("its dollars are an estimate (AWS Price List, AmazonEC2" in note for note in estimated.notes)
    unknown = used("ml.p7.48xlarge")
    assert (unknown.usd, unknown.dollars, unknown.gpu_hours) == (None, "cost unknown", 8.0)
    assert [(use.user, use.usd) for use in unknown.uses] == [("ada", None), ("bob", 0.0)]
    assert any("price of ml.p7.48xlarge is unknown" in note for note in unknown.notes)
    usage.draw(unknown, tmp_path / "unknown.svg")
    assert "cost unknown" in (tmp_path / "unknown.svg").read_text()


def test_nothing_used_is_an_empty_table_and_a_picture_all_the_same(aws: StubbedAws, tmp_path: Path) -> None:
    found = usage.read(stack(aws, "dev").config, [], [], "2026-11-01")
    assert (found.gpu_hours, found.usd, found.uses) == (0, 0, ())
    usage.draw(found, tmp_path / "none.png")
    assert (tmp_path / "none.png").stat().st_size


@pytest.mark.parametrize("since", ["yesterday", "2026-13-01", "2026-11-01; reboot", "$(reboot)"])
def test_a_time_that_is_none_is_refused_before_anything_is_asked(
    since: str, said: dict[str, str], aws: StubbedAws
) -> None:
    _, err = ended(Exit.BAD_INPUT, "usage", "dev", "--since", since)
    assert "2026-11-01T08:00" in err
    assert "asked" not in said


def test_the_default_is_this_month() -> None:
    assert usage.start(None, datetime(2026, 11, 22)) == "2026-11-01"


def test_a_slurm_that_keeps_no_account_of_jobs_is_told_with_the_key_that_changes_it(
    said: dict[str, str], aws: StubbedAws
) -> None:
    with_nodes(aws)
    said |= {"output": "Slurm accounting storage is disabled\n", "code": "1"}
    _, err = ended(Exit.FAILED, "usage", "dev")
    assert "accounting storage is disabled" in err
    assert "hyperpod:slurm.accounting" in err


def test_a_stack_without_accounting_is_told_before_anyone_is_asked(aws: StubbedAws) -> None:
    aws.break_off("sagemaker", NoCredentialsError())
    _, err = ended(Exit.CANNOT_KNOW, "usage", "dev")
    assert err.startswith("dev has no hyperpod:slurm.accounting: unless its slurm.conf names another, Slurm keeps no")


def test_eks_has_no_accounts_of_slurm(aws: StubbedAws) -> None:
    with pytest.raises(Failure, match="Slurm"):
        slurm_accounts.apply(stack(aws, "eks-gpu"), True)


def test_a_stack_on_eks_without_metrics_is_told_which_key_starts_them(aws: StubbedAws) -> None:
    _, err = ended(Exit.BAD_INPUT, "usage", "eks-gpu")
    assert "set hyperpod:observability.prometheus to create" in err


def test_the_controller_gets_the_accounts_of_the_configuration(aws: StubbedAws, said: dict[str, str]) -> None:
    for dry_run, done in ((True, "would do"), (False, "done")):
        with_nodes(aws)
        said["output"] = f"{done}: sacctmgr add qos late\nkept: account old\n"
        found = slurm_accounts.apply(stack(aws, "dev", *SLURM), dry_run)
        assert (found.changes, found.notes) == (["sacctmgr add qos late"], ["kept: account old"])
        assert said["asked"].endswith("hyperpod-slurm-accounts --dry-run") == dry_run
    unpack, _, apply = said["asked"].partition(" | ")
    assert apply == "sudo -n /opt/hyperpod/bin/hyperpod-slurm-accounts"
    sent = subprocess.run(["bash", "-c", unpack], capture_output=True, text=True, check=True).stdout
    wanted = parameters.part(Accounting, json.loads(sent), "")
    assert (wanted.accounts[0].users, wanted.accounts[0].max_gpus, wanted.qos[0].name) == (("ada",), 4, "late")


def test_a_dry_run_changes_nothing_on_a_controller_whose_scripts_are_older(
    aws: StubbedAws, said: dict[str, str], tmp_path: Path
) -> None:
    # The program before --dry-run: it ignores its options, refuses what is no JSON and applies everything else.
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\nlist=$(cat)\n[ -n \"$list\" ] || exit 1\necho 'done: sacctmgr add qos late'\n")
    sudo.chmod(0o755)
    with_nodes(aws)
    slurm_accounts.apply(stack(aws, "dev", *SLURM), True)
    node = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(["bash", "-c", said["asked"]], env=node, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "sacctmgr" not in ran.stdout
    with_nodes(aws)
    said |= {"output": ran.stdout, "code": "1"}
    with pytest.raises(Failure, match="what the accounts would change: its scripts are older") as refused:
        slurm_accounts.apply(stack(aws, "dev", *SLURM), True)
    assert refused.value.hint == "hyperpod node run-scripts dev controller"


def test_a_controller_that_refuses_is_told_with_its_reason(aws: StubbedAws, said: dict[str, str]) -> None:
    with_nodes(aws)
    said |= {"output": "hyperpod-slurm-accounts: `sacctmgr` failed: no\n", "code": "1"}
    with pytest.raises(Failure, match="did not apply the accounts: hyperpod-slurm-accounts: `sacctmgr` failed: no"):
        slurm_accounts.apply(stack(aws, "dev", *SLURM), False)


def test_without_accounting_there_is_nothing_to_apply(aws: StubbedAws) -> None:
    _, err = ended(Exit.BAD_INPUT, "apply", "dev", "--part", "accounts")
    assert "set hyperpod:slurm.accounting" in err


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


def test_people_of_eks_get_a_table_and_a_picture(measured: Workspace, tmp_path: Path) -> None:
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
