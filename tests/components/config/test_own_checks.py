"""The folder of users' own health checks is refused before anything is created, with everything that is wrong."""

from __future__ import annotations

import pytest

from components.config import load, own_checks
from components.config.problems import ConfigError
from tests.components.config.refusals import Tree, told_of
from tests.rows import each

SCRIPT = "#!/bin/sh\n"
BAD: dict[str, tuple[Tree, str]] = {
    "no folder": (None, "mine does not exist; a folder of executables, relative to the project's folder"),
    "a file": (SCRIPT, "mine is a file; a folder of executables"),
    "an empty folder": ({}, "mine is empty; put a check in it, or leave the key out"),
    "what is not executable": ({"one": "no script"}, "mine/one is not executable; chmod +x mine/one"),
    "a folder inside": ({"one": {}}, "mine/one is no file"),
    "two words": ({"two words": SCRIPT}, "'two words' cannot name a check; at most 40 letters"),
    "too many": ({f"check-{number}": SCRIPT for number in range(17)}, "mine has 17 files; at most 16"),
    "too large": ({"large": SCRIPT + "x" * own_checks.MOST_BYTES}, "bytes; at most 1048576"),
}


def told(tree: Tree) -> list[str]:
    """Everything that is said of such a folder."""
    return told_of(tree, own_checks.problems)


@each(BAD)
def test_a_folder_that_could_not_run_is_refused(tree: Tree, said: str) -> None:
    (problem,) = told(tree)
    assert problem.startswith("hyperpod:healthChecks: ")
    assert said in problem


def test_a_folder_of_executables_is_taken() -> None:
    assert told({"disk-3.sh": SCRIPT, ".gitignore": ""}) == []
    assert own_checks.problems("") == own_checks.problems(None) == []


def test_every_file_that_could_not_run_is_named() -> None:
    assert len(told({"one": "", "two words": SCRIPT, "three": {}})) == 3


def test_a_deployment_reports_it_beside_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"aws:region": "us-west-2", "hyperpod:healthChecks": "nowhere", "hyperpod:clusterName": "NO"}
    monkeypatch.setattr("pulumi.runtime.config.get_config_env", lambda: values)
    with pytest.raises(ConfigError) as refused:
        load()
    assert {problem.key for problem in refused.value.problems} == {"hyperpod:clusterName", "hyperpod:healthChecks"}
