"""The register of assumptions: its rows hold together, its probes tell answers apart, no refusal refutes a row."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import botocore.session
import jmespath
import pytest

from operations.assumptions import Assumption, Probe, register
from operations.assumptions.probing import VALUES, Stack, picked, printed, worst
from operations.aws import SERVED
from operations.cluster import nodes, sessions
from operations.cluster.sessions import Remote
from operations.failures import Exit, cannot_know
from tests.operations.aws import (
    RefusingAws,
    StubbedAws,
    cluster,
    ended,
    ended_json,
    node,
    run,
    run_json,
    stack,
    with_nodes,
)
from tests.rows import each
from tests.support import ROOT, config

ROWS = {row.id: row for row in register()}
FILLED = {name: name.upper() for name in VALUES} | {"account": "123456789012"}
READING = re.compile(r"(describe|list|get|lookup|filter|simulate)_")
# What a probe must never say on a node.
CHANGING = re.compile(
    r"\b(rm|mv|cp|tee|dd|kill|mount|umount|sed -i|restart|stop|start|update|set|install)\b|[^2]>(?!/dev/null)"
)


def filled(value: Any) -> Any:
    """The same as if a stack had been asked."""
    text = json.dumps(value)
    for name, known in FILLED.items():
        text = text.replace(f"{{{name}}}", known)
    return json.loads(text)


def test_a_rehearsal_is_not_asked_since_it_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVED, str(ROOT))
    code, out, told = run("assumptions", "dev")
    assert (code, out) == (Exit.CANNOT_KNOW, "")
    assert "a rehearsal proves nothing about AWS" in told


def test_there_are_rows_of_every_part_and_none_twice() -> None:
    assert len(ROWS) == len(register()) >= 45
    assert {row.split("-")[0] for row in ROWS} >= {"nodes", "slurm", "eks", "aws", "efa"}


@each(ROWS)
def test_a_row_is_complete(row: Assumption) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", row.id)
    assert all(len(text) > 10 for text in (row.claim, row.source, row.wrong, row.change))
    assert any(row.concerns(config(name)) for name in ("dev", "slurm-gpu", "slurm-trainium", "eks-gpu")) or row.only


@each(ROWS)
def test_a_probe_changes_nothing_and_names_what_there_is(row: Assumption) -> None:
    probe = row.probe
    assert sum(bool(way) for way in (probe.node, probe.api, probe.kubernetes, probe.prometheus)) == 1
    assert bool(probe.command) == bool(probe.node)
    assert not CHANGING.search(probe.command), probe.command
    jmespath.compile(probe.find or "@")
    if probe.api:
        service, operation = probe.api.split()
        assert READING.match(operation)
        model = botocore.session.get_session().get_service_model(service)
        shape = model.operation_model(_operation(model, operation)).input_shape
        assert set(probe.arguments) <= set(shape.members)


@each({name: row for name, row in ROWS.items() if row.probe.api})
def test_answers_have_the_form_that_aws_publishes(row: Assumption) -> None:
    service, operation = row.probe.api.split()
    model = botocore.session.get_session().get_service_model(service)
    shape = model.operation_model(_operation(model, operation)).output_shape
    assert not list(_strange(shape, row.sample)), row.id


def _strange(shape: Any, value: Any) -> Iterator[str]:
    """Keys and words of a sample that AWS's answer does not have."""
    if shape.type_name == "structure":
        for key, item in value.items():
            yield from [key] if key not in shape.members else _strange(shape.members[key], item)
    elif shape.type_name == "list":
        for item in value:
            yield from _strange(shape.member, item)
    elif getattr(shape, "enum", None) and value not in shape.enum:
        yield value


def test_commands_on_nodes_are_good_shell(tmp_path: Path) -> None:
    script = tmp_path / "probes.sh"
    commands = [row.probe.command for row in ROWS.values() if row.probe.node]
    script.write_text("#!/bin/bash\n" + "\n".join(f"( {command} )" for command in commands) + "\n")
    # Names of the stack are filled in later, and images have files that are not here; ls is read by people and by us.
    told = subprocess.run(
        [Path(sys.executable).parent / "shellcheck", "--exclude=SC1083,SC1091,SC2012,SC2010,SC2086", script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout


def _operation(model: Any, method: str) -> str:
    return str(next(name for name in model.operation_names if botocore.xform_name(name) == method))


@each(ROWS)
def test_a_probe_confirms_what_the_sample_says(row: Assumption) -> None:
    sample = filled(row.sample)
    probe = Probe.model_validate(filled(row.probe.model_dump()))
    text = sample if probe.node else picked(probe, sample)
    assert probe.read(text) == "confirmed", text
    assert re.compile(probe.refuted)


def test_an_answer_that_says_neither_or_both_settles_nothing() -> None:
    probe = Probe(node="any", command="true", confirmed="^yes$", refuted="^no$")
    assert [probe.read(printed(text, 0)) for text in ("yes\n", "no\n", "", "yes\nno\n")] == [
        "confirmed", "refuted", "unknown", "unknown",
    ]  # fmt: skip


def test_a_row_is_asked_of_stacks_that_rely_on_it() -> None:
    assert ROWS["slurm-version"].concerns(config("dev"))
    assert not ROWS["slurm-version"].concerns(config("eks-gpu"))
    assert ROWS["efa-p5-devices"].concerns(config("slurm-gpu"))
    assert not ROWS["efa-p5-devices"].concerns(config("dev"))
    assert not ROWS["aws-govcloud"].concerns(config("dev"))
    spot = {"workers": [{"name": "workers", "instanceType": "ml.g5.16xlarge", "capacity": "spot"}]}
    assert ROWS["slurm-spot"].concerns(config("dev", **spot))
    assert not ROWS["slurm-spot"].concerns(config("dev"))


def test_without_a_stack_the_register_is_listed_and_a_row_shown_in_full() -> None:
    out, _ = ended(Exit.GOOD, "assumptions")
    assert all(row in out for row in ROWS)
    out, _ = ended(Exit.GOOD, "assumptions", "--id", "slurm-version")
    assert "scontrol --version" in out
    assert ROWS["slurm-version"].change.split(",")[0] in out
    _, listed = run_json("assumptions")
    assert [row["id"] for row in listed] == list(ROWS)
    _, err = ended(Exit.BAD_INPUT, "assumptions", "--id", "nosuch")
    assert "nosuch" in err


@pytest.mark.parametrize(
    ("status", "said", "exit_code"),
    [
        ("Automatic", "slurm 25.11.8\n", Exit.GOOD),
        ("Automatic", "slurm 23.02.1\n", Exit.FAILED),
        ("None", "slurm 25.11.8\n", Exit.FAILED),
        ("Automatic", "what?\n", Exit.CANNOT_KNOW),
    ],
)
def test_a_live_stack_is_asked_row_by_row(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch, status: str, said: str, exit_code: Exit
) -> None:
    monkeypatch.setattr(sessions, "run_remote", lambda *_, **__: Remote(code=0, output=said))
    with_nodes(aws, node("controller", 1))
    aws.answer("sagemaker", "describe_cluster", {**cluster(), "NodeRecovery": status})
    words = ("assumptions", "dev", "--id", "slurm-version", "--id", "aws-node-recovery")
    code, found = run_json(*words)
    assert code == exit_code
    results = {one["id"]: one["result"] for one in found["findings"]}
    assert results["aws-node-recovery"] == ("confirmed" if status == "Automatic" else "refuted")
    for one in found["findings"]:
        assert bool(one["change"]) == (one["result"] == "refuted")


@pytest.mark.parametrize(
    "code", ["AccessDeniedException", "ExpiredToken", "ThrottlingException", "ValidationException"]
)
def test_what_cannot_be_asked_is_unknown(
    refusing: Callable[..., RefusingAws], monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    def silent(*_: Any, **__: Any) -> Remote:
        raise cannot_know("the plugin is not installed")

    monkeypatch.setattr(sessions, "run_remote", silent)
    monkeypatch.setattr(nodes, "kubernetes", silent)
    live = Stack(stack(refusing(code)))
    findings = [live.ask(row) for row in ROWS.values()]
    assert {finding.result for finding in findings} == {"unknown"}
    assert all(finding.seen for finding in findings)
    assert worst(findings) is Exit.CANNOT_KNOW


def test_what_is_sent_in_has_no_account_number(aws: StubbedAws) -> None:
    aws.answer("sagemaker", "describe_cluster", cluster())
    interface = {"Attachment": {"InstanceId": "i-0", "InstanceOwnerId": "999988887777"}}
    aws.answer("ec2", "describe_network_interfaces", {"NetworkInterfaces": [interface]})
    found = ended_json(Exit.GOOD, "assumptions", "dev", "--id", "aws-instances-owner")
    assert not re.search(r"\d{12}", json.dumps(found))


def test_rows_that_the_docs_rest_on_are_there() -> None:
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    named = {one for path in texts for one in _named(path)}
    assert named
    assert named <= ROWS.keys(), named - ROWS.keys()


def _named(path: Path) -> list[str]:
    """Rows are quoted as assumption `id`, or assumptions `id` and `id`."""
    return [
        one
        for match in re.findall(r"assumptions?\s+((?:`[a-z0-9-]+`(?:,|\s|and)*)+)", path.read_text())
        for one in re.findall(r"`([a-z0-9-]+)`", match)
    ]
