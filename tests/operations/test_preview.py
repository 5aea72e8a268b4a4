"""What a preview says: counts by component, and which inputs change, without secrets."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from operations import target
from operations.commands.deploy_report import by_component
from operations.deployment import deploy
from operations.engine.inputs import changed
from operations.engine.pulumi_cli import CommandRun, _note_change
from operations.target import Target
from rehearsal.verb_engine import rehearsed
from tests.operations.aws import run
from tests.operations.small import PROGRAM

MARKED = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "plaintext": "hunter2"}
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


def test_inputs_are_told_by_path_from_what_to_what() -> None:
    old = {
        "name": "a",
        "groups": [{"count": 2.0}, {"count": 1.0}],
        "tags": {"x": "1"},
        "tagsAll": {"x": "1"},
        "gone": True,
    }
    new = {"name": "a", "groups": [{"count": 4}], "tags": {"x": "2"}, "tagsAll": {"x": "2"}, "arn": UNKNOWN, "text": ""}
    assert changed(old, new) == {
        "arn": ("none", "known after the deployment"),
        "gone": ("true", "none"),
        "groups[0].count": ("2", "4"),
        "groups[1]": ('{"count": 1}', "none"),
        "tags.x": ("1", "2"),
        "text": ("none", '""'),
    }


def test_instance_groups_are_compared_by_name_in_whatever_order_they_come() -> None:
    workers, system = ({"instanceGroupName": name, "instanceCount": 2} for name in ("workers", "system"))
    assert changed({"instanceGroups": [workers, system]}, {"instanceGroups": [system, workers]}) == {}
    assert changed({"instanceGroups": [workers, system]}, {"instanceGroups": [{**system, "instanceCount": 3}]}) == {
        "instanceGroups[system].instanceCount": ("2", "3"),
        "instanceGroups[workers]": ('{"instanceGroupName": "workers", "instanceCount": 2}', "none"),
    }


def test_a_policy_is_compared_by_what_it_says() -> None:
    old = json.dumps({"Statement": [{"Action": ["s3:GetObject"], "Effect": "Allow"}]})
    new = json.dumps({"Statement": [{"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"]}]})
    assert changed({"policy": old}, {"policy": new}) == {"policy.Statement[0].Action[1]": ("none", "s3:PutObject")}


@pytest.mark.parametrize(
    ("old", "new", "how"),
    [
        ({"a": "hunter2"}, {"a": "hunter3"}, {"secrets": {"a"}}),
        ({"a": MARKED}, {"a": "plain"}, {}),
        ({"a": {"deep": [MARKED]}}, {"a": {"deep": ["hunter3"]}}, {}),
        ({"a": "[secret]"}, {"a": "[secret]"}, {"said": ["a"]}),
    ],
)
def test_of_a_secret_only_is_told_that_it_changes(old: Any, new: Any, how: Any) -> None:
    assert changed(old, new, **how) == {"a": ("[secret]", "[secret]")}
    assert changed(old, old, **{**how, "said": []}) == {}


def test_the_cli_tells_component_and_inputs() -> None:
    component = "urn:pulumi:dev::p::hyperpod:index:Storage::storage"
    urn = "urn:pulumi:dev::p::hyperpod:index:Storage$aws:fsx/lustreFileSystem:LustreFileSystem::storage-lustre"
    states = [SimpleNamespace(inputs={"storageCapacity": size}, parent=component) for size in (1200, 4800)]
    told = CommandRun()
    _note_change(told, SimpleNamespace(urn=urn, op="update", old=states[0], new=states[1], diffs=["storageCapacity"]))
    _note_change(told, SimpleNamespace(urn=urn, op="delete", old=states[0], new=None, diffs=None))
    assert told.components == {"storage": {"update": ["storage-lustre"], "delete": ["storage-lustre"]}}
    assert told.inputs == {
        "storage-lustre (aws:fsx/lustreFileSystem:LustreFileSystem)": {"storageCapacity": ("1200", "4800")}
    }


def test_what_is_created_is_counted_and_what_else_changes_is_named() -> None:
    report = deploy.Report(
        stack="dev",
        command="preview",
        engine="",
        succeeded=True,
        components={
            "lifecycle": {"create": [f"file-{number}" for number in range(56)], "update": ["parameters"]},
            "": {"delete": ["old", "old", "older"]},
        },
    )
    assert by_component(report) == [
        "lifecycle  56 to create; 1 to change: parameters",
        "stack      3 to delete: old, older",
    ]


def test_a_preview_of_a_deployed_stack_shows_what_differs(
    project: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = project(
        PROGRAM.replace("retention_in_days={days}", "retention_in_days=days").replace("{{", "{").replace("}}", "}")
    )
    monkeypatch.setattr(target, "load", lambda stack, overrides=None: chosen)
    with rehearsed(chosen) as (engine, account):
        assert deploy.run(chosen, engine, "up").succeeded
        engine.configure({"hyperpod:workers[0].name": "x"})
        monkeypatch.setattr("operations.commands.deploy.open_engine", lambda *_, **__: nullcontext((engine, account)))
        _, out, _ = run("preview", "dev", "--rehearse", "--diff")
        _, said, _ = run("preview", "dev", "--rehearse", "--json")
    assert out.splitlines() == [
        "  later (aws:cloudwatch/logGroup:LogGroup)",
        "    retentionInDays: 7 -> 1",
        "  stack  1 to change: later",
        "dev: 1 to change, 1 unchanged.",
    ]
    assert json.loads(said)["inputs"] == {"later (aws:cloudwatch/logGroup:LogGroup)": {"retentionInDays": ["7", "1"]}}
