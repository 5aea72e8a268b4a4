"""The stack's lines of slurm.conf: the controller is asked to take them, and says what it made of them."""

import json
from pathlib import Path

import pytest
from hyperpod_node.facts.model import ConfFile
from hyperpod_node.slurm import extra_conf

from operations.cluster import slurm_config
from operations.failures import Failure
from tests.operations.aws import StubbedAws, controller_says, stack, with_nodes

LINES = "KillWait=11\n"


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "a.conf").write_text(LINES)
    return f'slurm={{"extraConf":"{tmp_path}"}}'


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, aws: StubbedAws) -> dict[str, str]:
    """What the controller prints, to change; and what it was asked."""
    with_nodes(aws)
    files = (ConfFile("a.conf", LINES),)
    document = {"files": ["a.conf"], "digest": extra_conf.digest(files), "changed": True}
    return controller_says(monkeypatch, json.dumps(document))


def test_the_controller_takes_the_lines_from_the_lifecycle_bucket(
    said: dict[str, str], own: str, aws: StubbedAws
) -> None:
    assert slurm_config.apply(stack(aws, "dev", own), False).changes == ["controller-1 includes a.conf"]
    sudo, _, command, uri, *region = said["asked"].split()
    assert (sudo, command) == ("sudo", slurm_config.COMMAND)
    assert uri.endswith("/lifecycle/hyperpod_slurm_conf.json")
    assert region == ["--region", "us-west-2"]


def test_without_lines_those_of_before_go(said: dict[str, str], aws: StubbedAws) -> None:
    for changed in (True, False):
        with_nodes(aws)
        said["output"] = json.dumps({"files": [], "digest": extra_conf.digest(()), "changed": changed})
        expected = ["controller-1 includes no file of its own"] if changed else []
        assert slurm_config.apply(stack(aws, "dev"), changed).changes == expected
        assert said["asked"] == f"sudo -n {slurm_config.COMMAND}{' --dry-run' if changed else ''}"


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("hyperpod-slurm-config: a.conf, line 1: fatal: no\n", "changed nothing: .*a.conf, line 1: fatal: no"),
        (f"sudo: {slurm_config.COMMAND}: command not found\n", "its scripts are older than this verb"),
        ("hyperpod-slurm-config: error: unrecognized arguments: --dry-run\n", "its scripts are older than this verb"),
    ],
)
def test_a_controller_that_refuses_is_told_with_its_reason(
    said: dict[str, str], own: str, aws: StubbedAws, output: str, why: str
) -> None:
    said |= {"output": output, "code": "1"}
    with pytest.raises(Failure, match=why):
        slurm_config.apply(stack(aws, "dev", own), False)


def test_lines_that_are_not_deployed_yet_are_told_of(said: dict[str, str], own: str, aws: StubbedAws) -> None:
    said["output"] = said["output"].replace('"digest": "', '"digest": "x')
    with pytest.raises(Failure, match="lines differ from"):
        slurm_config.apply(stack(aws, "dev", own), False)


def test_a_line_that_cannot_be_is_refused_before_the_controller_is_asked(
    said: dict[str, str], own: str, tmp_path: Path, aws: StubbedAws
) -> None:
    (tmp_path / "a.conf").write_text("NoSuchKey=1\n")
    with pytest.raises(Failure, match=r"a\.conf, line 1: Slurm 25\.11 has no parameter NoSuchKey"):
        slurm_config.apply(stack(aws, "dev", own), False)
    assert "asked" not in said
