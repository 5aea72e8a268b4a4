"""The first minutes: a new stack's file is right, priced and within its budget, and every key is explained."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from components.common.documents import load
from components.config.keys import keys
from components.estimates.cost import estimate
from operations import target
from operations.commands import init
from operations.deployment import new_stack
from operations.deployment.new_stack import Wanted
from operations.failures import Exit, advice
from operations.spending import capacity
from tests.operations.aws import StubbedAws, ended, ended_json, run, run_json
from tests.rows import each
from tests.support import READY_STACKS, ROOT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without stacks, on a machine without credentials."""
    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    monkeypatch.setattr("operations.commands.init.ROOT", tmp_path)
    monkeypatch.setattr(capacity, "zones_of", lambda aws, kind: ([], "no credentials"))
    return tmp_path


def wanted(**other: Any) -> Wanted:
    chosen = {
        "name": "trial", "orchestrator": "slurm", "accelerator": "gpu", "region": "us-west-2", "zone": "",
        "instance_type": "ml.p5.48xlarge", "nodes": 2,
    }  # fmt: skip
    return Wanted(**{**chosen, **other})


@each(
    {
        "slurm-gpu": {},
        "slurm-trainium": {"accelerator": "trainium", "instance_type": "ml.trn1.32xlarge", "nodes": 3},
        "eks-gpu": {"orchestrator": "eks", "region": "us-east-1", "zone": "use1-az2"},
        "eks-trainium": {"orchestrator": "eks", "accelerator": "trainium", "instance_type": "ml.trn2.48xlarge"},
    }
)
def test_a_new_stack_is_what_was_wanted(other: dict[str, Any]) -> None:
    asked = wanted(**other)
    settings = new_stack.planned(asked).config.settings
    assert (settings.orchestrator, settings.accelerator) == (asked.orchestrator, asked.accelerator)
    assert settings.cluster_name == "trial"
    assert settings.availability_zone_id == (asked.zone or "usw2-az1")
    workers = settings.workers[0]
    assert (workers.instance_type, workers.count) == (asked.instance_type, asked.nodes)
    assert [group.name for group in settings.workers] == [
        "workers",
        *(["system"] if asked.orchestrator == "eks" else []),
    ]


def test_the_examples_in_its_comments_are_valid_too() -> None:
    text = new_stack.text(wanted(orchestrator="eks")).replace("ADDRESS", "8.8.8.8")
    every = load("\n".join(line.replace("# hyperpod:", "hyperpod:", 1) for line in text.splitlines()))
    assert {"hyperpod:fsx", "hyperpod:alerts", "hyperpod:protect", "hyperpod:kubernetesApiCidrs"} <= every[
        "config"
    ].keys()
    overrides = [
        f"{key}={json.dumps(value)}" for key, value in every["config"].items() if isinstance(value, dict | list)
    ]
    target.load("eks-gpu", overrides)


def test_a_budget_is_filled_and_not_exceeded(folder: Path) -> None:
    found = ended_json(Exit.GOOD, "init", "trial", "--budget", "300")
    assert found.keys() == {"file", "hourly_usd", "cost", "nodes", "zone", "offered_in", "quotas", "warnings"}
    assert found["warnings"] == []
    assert found["zone"] == load((folder / "Pulumi.trial.yaml").read_text())["config"]["hyperpod:availabilityZoneId"]
    assert found["hourly_usd"] <= 300
    more = new_stack.planned(wanted(nodes=found["nodes"] + 1)).config
    assert estimate(more).whole.least > 300
    assert load((folder / "Pulumi.trial.yaml").read_text())["config"]["hyperpod:workers"][0]["count"] == found["nodes"]
    assert {"service": "sagemaker", "name": "ml.p5.48xlarge for cluster usage"}.items() <= found["quotas"][1].items()


@each(
    (
        ("bad_name", (), '"bad_name"'),
        ("taken", (), "Pulumi.taken.yaml exists already"),
        ("trial", ("--budget", "5"), "--budget 68"),
        ("trial", ("--budget", "500", "--nodes", "2"), "exclude each other"),
        ("trial", ("--region", "mars-1"), "one of ap-northeast-1"),
        ("trial", ("--instance-type", "ml.p5.48large"), "--instance-type: "),
        ("trial", ("--zone", "usw2-az9"), "--zone: "),
        ("trial", ("--accelerator", "gpu", "--instance-type", "ml.trn1.32xlarge"), "but --accelerator is gpu"),
        ("Trial", (), '"Trial" cannot be'),
        ("", (), "NAME is missing"),
    )
)
def test_nothing_is_written_where_something_is_wrong(
    name: str, options: tuple[str, ...], said: str, folder: Path
) -> None:
    (folder / "Pulumi.taken.yaml").write_text("config: {}\n")
    _, err = ended(Exit.BAD_INPUT, "init", *filter(None, [name]), *options)
    assert said in err
    assert "hyperpod:" not in err
    assert sorted(path.name for path in folder.iterdir()) == ["Pulumi.taken.yaml", "Pulumi.yaml"]


@each(
    (
        ("--instance-type", "ml.g7e.48xlarge"),
        ("--instance-type", "ml.p7.48xlarge"),
        ("--region", "eu-central-1"),
    )
)
def test_a_budget_without_a_price_is_refused_and_nothing_is_written(option: str, value: str, folder: Path) -> None:
    _, err = ended(Exit.CANNOT_KNOW, "init", "trial", "--budget", "300", option, value)
    assert "it is unknown how many nodes cost $300.00 an hour" in err
    assert "unknown" in err
    assert [path.name for path in folder.iterdir()] == ["Pulumi.yaml"]


def test_a_new_stack_without_a_price_says_so(folder: Path) -> None:
    out, _ = ended(Exit.GOOD, "init", "trial", "--instance-type", "ml.g7e.48xlarge")
    first = out.splitlines()[0]
    assert "price of 2 x ml.g7e.48xlarge unknown; about $" in first
    assert "Warning: HyperPod's price of 2 x ml.g7e.48xlarge is unknown" in out
    (folder / "Pulumi.trial.yaml").unlink()
    _, found = run_json("init", "trial", "--instance-type", "ml.g5.xlarge")
    assert found["hourly_usd"] is None
    assert any("has no EFA" in warning for warning in found["warnings"])


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Types keys at a terminal that shows nothing."""
    monkeypatch.setattr("operations.terminal.questions.at_terminal", lambda: True)
    monkeypatch.setattr("prompt_toolkit.output.create_output", lambda _: DummyOutput())
    with create_pipe_input() as pipe, create_app_session(input=pipe):
        yield pipe.send_text


_DOWN, _RUBOUT = "\x1b[B", "\x7f"


def test_somebody_at_a_terminal_picks_and_no_wrong_answer_is_taken(folder: Path, typed: Callable[[str], None]) -> None:
    (folder / "Pulumi.taken.yaml").touch()
    name = f"Bad\r{_RUBOUT * 3}taken\r{_RUBOUT * 5}trial\r"
    count = "".join(f"{wrong}\r{_RUBOUT * len(wrong)}" for wrong in ("two", "2.5", "0")) + "4\r"
    typed(f"{name}{_DOWN}\rus-east-1\rtrn1.\r{_DOWN}\r{count}")
    out, _ = ended(Exit.GOOD, "init")
    assert "4 x ml.trn1.32xlarge in us-east-1 (use1-az2)" in out
    assert "could not be asked: no credentials" in out
    for verb in ("rehearse", "quotas", "deploy"):
        assert f"hyperpod {verb} trial" in out
    written = load((folder / "Pulumi.trial.yaml").read_text())["config"]
    assert (written["hyperpod:orchestrator"], written["hyperpod:accelerator"]) == ("eks", "trainium")


def test_a_type_that_the_list_lacks_is_asked_for_by_name(folder: Path, typed: Callable[[str], None]) -> None:
    typed(f"another\rp5.48large\r{_RUBOUT * 10}p9.48xlarge\r")
    rest = ("--orchestrator", "slurm", "--region", "us-west-2", "--zone", "usw2-az2", "--nodes", "2")
    code, out, _ = run("init", "trial", *rest)
    assert (code, "2 x ml.p9.48xlarge" in out) == (Exit.GOOD, True)


def test_the_list_of_types_has_what_decides_between_them() -> None:
    titles = init._types(None)
    assert titles["ml.p5.48xlarge"] == "ml.p5.48xlarge         $66.05    EFA 32  8 x H100, 80 GiB"
    assert titles["ml.g4dn.xlarge"] == "ml.g4dn.xlarge         ~$0.53    no EFA  1 x T4, 16 GiB"
    assert "ml.m5.xlarge" not in titles
    assert {*init._types("trainium")} < {*titles}
    # A narrow terminal cuts off what comes last.
    assert max(map(len, titles.values())) <= 77


def test_without_a_terminal_nobody_is_asked(folder: Path) -> None:
    _, found = run_json("init", "trial")
    assert (found["nodes"], found["zone"]) == (2, "usw2-az1")


def test_a_type_is_known_by_ec2s_name_too_and_tells_the_accelerator(folder: Path) -> None:
    out, err = ended(Exit.GOOD, "init", "trial", "--instance-type", "trn1.32xlarge", "--dry-run")
    found = load(out)["config"]
    assert found["hyperpod:accelerator"] == "trainium"
    assert found["hyperpod:workers"][0]["instanceType"] == "ml.trn1.32xlarge"
    assert "Not written: Pulumi.trial.yaml, 2 x ml.trn1.32xlarge" in err
    _, document = run_json("init", "trial", "--instance-type", "trn1.32xlarge", "--dry-run")
    assert document["text"] == out
    assert [path.name for path in folder.iterdir()] == ["Pulumi.yaml"]


def test_a_folder_that_cannot_be_written_to_is_told_before_any_question(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operations.commands.init.os.access", lambda *_: False)
    monkeypatch.setattr("operations.commands.init._ask", None)
    code, _, err = run("init", "trial")
    assert (code, "cannot be written to\nNext: --dry-run prints the file" in err) == (Exit.FAILED, True)


@each({"Ctrl-C": "\x03", "Ctrl-D": "\x04", "Ctrl-D after a word": "tri\x04", "at a list": "trial\r\x04"})
def test_a_question_that_is_not_answered_ends_the_verb_and_writes_nothing(
    keys: str, folder: Path, typed: Callable[[str], None]
) -> None:
    typed(keys)
    code, out, err = run("init")
    assert (code, out, err.splitlines()) == (Exit.CANCELLED, "", ["Cancelled."])
    assert [path.name for path in folder.iterdir()] == ["Pulumi.yaml"]


def test_the_zones_that_offer_an_instance_type_are_asked_for_and_taken(aws: StubbedAws) -> None:
    found = {"InstanceTypeOfferings": [{"Location": "usw2-az3"}, {"Location": "usw2-az2"}]}
    filters = [{"Name": "instance-type", "Values": ["p5.48xlarge"]}]
    aws.answer("ec2", "describe_instance_type_offerings", found, Filters=filters, LocationType="availability-zone-id")
    assert capacity.zones_of(aws, "ml.p5.48xlarge") == (["usw2-az2", "usw2-az3"], "")
    aws.refuse("ec2", "describe_instance_type_offerings", "UnauthorizedOperation", "not you")
    offered, why = capacity.zones_of(aws, "ml.p5.48xlarge")
    assert (offered, why) == ([], "permission denied: DescribeInstanceTypeOfferings")


def test_stacks_are_listed_with_their_price_and_a_broken_one_with_its_problem(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(ROOT / "Pulumi.dev.yaml", folder)
    (folder / "Pulumi.bad.yaml").write_text("config:\n  hyperpod:size: huge\n")
    monkeypatch.setattr(target, "ROOT", folder)
    monkeypatch.setattr(target.load, "__defaults__", (None, folder))
    _, found = run_json("list")
    assert [one["stack"] for one in found] == ["bad", "dev"]
    assert found[0]["problem"] == "2 problems: hyperpod cost bad"
    assert found[1]["estimated_hourly_usd"] == found[1]["hourly_usd"]
    assert (found[1]["workers"], round(found[1]["hourly_usd"], 2)) == ("2 x ml.g5.16xlarge", 11.37)
    assert "11.37" in run("list")[1]


def test_a_failure_is_explained_by_the_code_that_its_message_ends_with() -> None:
    _, _, err = run("cost", "nope")
    code = err.split("hyperpod explain ")[1].split(",")[0]
    ended, out, _ = run("explain", code.lower())
    assert (ended, out.splitlines()[0]) == (Exit.GOOD, f"{code}: {advice.named('input').title}")
    _, found = run_json("explain", "HP016")
    assert found["name"] == "quota"
    assert "Next: hyperpod quotas STACK" in run("explain", "HP016")[1]


def test_a_key_is_explained_with_its_parts() -> None:
    _, out, _ = run("explain", "hyperpod:fsx.storageGiB")
    assert "Capacity in GiB" in out
    assert "A change in a deployed stack: grows in place" in out
    _, out, _ = run("explain", "workers")
    assert "workers.instanceType" in out
    # A meaning that begins with a value is not cut there.
    assert "the group has `count` nodes" in out
    assert run("explain", "workers[1].count")[0] == Exit.GOOD
    code, _, err = run("explain", "storageGib")
    assert (code, "did you mean fsx.storageGiB?" in err) == (Exit.BAD_INPUT, True)


def test_every_key_is_listed() -> None:
    _, found = run_json("explain")
    schema = load((ROOT / "Pulumi.yaml").read_text())["config"]
    assert [one["path"] for one in found] == [one.path for one in keys(schema)]
    assert {one["path"] for one in found} == schema.keys()


def test_the_schema_for_editors_takes_every_ready_stack_and_refuses_what_is_wrong() -> None:
    schema = json.loads(run("explain", "--schema")[1])
    # One that has looked at the schema, which takes longer than all documents.
    editor = jsonschema.validators.validator_for(schema)(schema)
    for stack in READY_STACKS:
        editor.validate(load((ROOT / f"Pulumi.{stack}.yaml").read_text()))
    good = load((ROOT / "Pulumi.dev.yaml").read_text())
    editor.validate({**good, "encryptionsalt": "v1:x"})
    wrong = {
        "'huge' is not one of": {"config": {**good["config"], "hyperpod:size": "huge"}},
        "confg": {**good, "confg": {}},
        **{key: {"config": {**good["config"], key: "x"}} for key in ("hyperpod:orchestartor", "hyperpo:size", "sise")},
    }
    for said, document in wrong.items():
        with pytest.raises(jsonschema.ValidationError, match=said):
            editor.validate(document)
