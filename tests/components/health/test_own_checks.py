"""The folder of users' own health checks is refused before anything is created, with everything that is wrong."""

import subprocess
from pathlib import Path

import pulumi
import pytest

from components.config import load
from components.health import own_checks
from components.nodes.lifecycle_bucket import lifecycle_files
from components.schema.problems import ConfigError
from tests.components.config.refusals import Tree, told_of

SCRIPT = "#!/bin/sh\n"
BAD: dict[str, Tree] = {
    "no folder": None,
    "a file": SCRIPT,
    "an empty folder": {},
    "what is not executable": {"one": "no script"},
    "a folder inside": {"one": {}},
    "line ends of Windows": {"one": "#!/bin/sh\r\nexit 1\r\n"},
    "two words": {"two words": SCRIPT},
    "too many": {f"check-{number}": SCRIPT for number in range(17)},
    "too large": {"large": SCRIPT + "x" * own_checks.MOST_BYTES},
}


def told(tree: Tree) -> list[str]:
    """Everything that is said of such a folder."""
    return told_of(tree, own_checks.problems)


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


def test_scripts_of_the_nodes_with_line_ends_of_windows_are_not_shipped(tmp_path: Path) -> None:
    (tmp_path / "fine.sh").write_bytes(b"#!/bin/sh\ntrue\n")
    (tmp_path / "data.csv").write_bytes(b"a,b\r\n1,2\r\n")
    assert [path.name for path in lifecycle_files(tmp_path)] == ["data.csv", "fine.sh"]
    for name in ("on_create.sh", "prolog.sh"):
        (tmp_path / name).write_bytes(b"#!/bin/bash\r\nexit 0\r\n")
    both = rf"Windows line endings: {tmp_path}/on_create\.sh {tmp_path}/prolog\.sh; sed -i"
    with pytest.raises(pulumi.RunError, match=both):
        lifecycle_files(tmp_path)


def test_a_clone_on_windows_keeps_the_line_ends_of_what_runs_on_nodes() -> None:
    root = Path(__file__).parents[3]
    files = [path for folder in ("lifecycle", "jobs") for path in (root / folder).rglob("*.*") if path.is_file()]
    names = [str(path.relative_to(root)) for path in files if path.suffix != ".pyc"]
    asked = ["git", "-C", str(root), "check-attr", "eol", "--", *names]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) > 100
    assert [line for line in said if not line.endswith(": eol: lf")] == []
