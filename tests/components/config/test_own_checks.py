"""The folder of users' own health checks is refused before anything is created, with everything that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.config import load, own_checks
from components.config.problems import ConfigError


def check(folder: Path, name: str, text: str = "#!/bin/sh\n", mode: int = 0o755) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(mode)


def told(folder: Path) -> list[str]:
    return [f"{problem.what}; {problem.fix}" for problem in own_checks.problems(str(folder))]


def test_a_folder_of_executables_is_taken(tmp_path: Path) -> None:
    check(tmp_path / "mine", "disk-3.sh")
    check(tmp_path / "mine", ".gitignore", mode=0o644)
    assert told(tmp_path / "mine") == []
    assert own_checks.problems("") == own_checks.problems(None) == []


def test_what_is_no_folder_or_empty_is_refused(tmp_path: Path) -> None:
    wanted = "a folder of executables, relative to the project's folder"
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    assert told(tmp_path / "none") == [f"{tmp_path}/none does not exist; {wanted}"]
    assert told(tmp_path / "file") == [f"{tmp_path}/file is a file; {wanted}"]
    assert told(tmp_path / "empty") == [f"{tmp_path}/empty is empty; put a check in it, or leave the key out"]


def test_every_file_that_could_not_run_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    check(folder, "one", mode=0o644)
    check(folder, "two words")
    (folder / "three").mkdir()
    assert told(folder) == [
        f"{folder}/one is not executable; chmod +x {folder}/one, or move it elsewhere",
        f"{folder}/three is no file; the folder has the executables themselves",
        "'two words' cannot name a check; at most 40 letters, digits, dots, hyphens and underscores",
    ]


def test_too_many_or_too_large_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    for number in range(own_checks.MOST_FILES + 1):
        check(folder, f"check-{number}")
    check(folder, "large", "x" * own_checks.MOST_BYTES)
    count, size = told(folder)
    assert count == f"{folder} has 18 files; at most 16"
    assert size.endswith("bytes; at most 1048576")


def test_a_deployment_reports_it_beside_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"aws:region": "us-west-2", "hyperpod:healthChecks": "nowhere", "hyperpod:clusterName": "NO"}
    monkeypatch.setattr("pulumi.runtime.config.get_config_env", lambda: values)
    with pytest.raises(ConfigError) as refused:
        load()
    assert {problem.key for problem in refused.value.problems} == {"hyperpod:clusterName", "hyperpod:healthChecks"}
