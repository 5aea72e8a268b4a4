"""The folder of packages for containers is refused before anything is created, with everything that is wrong."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from components.config import container_packages, load
from components.config.problems import ConfigError
from tests.support import config


def told(folder: object) -> list[str]:
    return [f"{one.what}; {one.fix}" for one in container_packages.problems({"containerPackages": str(folder)})]


def packages(folder: Path, **texts: str) -> Path:
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
    lines = [f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in texts.items()]
    (folder / "SHA256SUMS").write_text("".join(lines))
    return folder


def test_files_that_are_what_their_digests_say_are_taken(tmp_path: Path) -> None:
    folder = packages(tmp_path / "mine", one="1", two="2")
    (folder / ".gitignore").write_text("")
    assert told(folder) == []
    assert container_packages.problems({}) == container_packages.problems("x") == []


def test_a_folder_without_digests_is_refused(tmp_path: Path) -> None:
    fill = "hyperpod containers FOLDER fills one"
    (tmp_path / "empty").mkdir()
    assert told(tmp_path / "none") == [f"there is no folder {tmp_path}/none; {fill}"]
    assert told(tmp_path / "empty") == [f"{tmp_path}/empty has no SHA256SUMS; {fill}"]
    assert told(packages(tmp_path / "nothing")) == [f"{tmp_path}/nothing/SHA256SUMS has no digest; {fill}"]


def test_every_file_that_is_not_as_it_should_be_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = packages(tmp_path / "mine", one="1", two="2", three="3")
    wanted = hashlib.sha256(b"1").hexdigest()
    (folder / "one").write_text("other")
    (folder / "two").unlink()
    (folder / "four").write_text("")
    monkeypatch.setattr(container_packages, "MOST_BYTES", 5)
    assert told(folder) == [
        f"{folder}/one has the digest {hashlib.sha256(b'other').hexdigest()}; it should have {wanted}: download it "
        "again, and trust no other",
        f"{folder}/two is missing, which SHA256SUMS names; hyperpod containers FOLDER fills one",
        f"SHA256SUMS has no digest of four; (cd {folder} && sha256sum four >> SHA256SUMS), or move it elsewhere",
        f"{folder} has 6 bytes; at most 5: no container images",
    ]


def test_packages_without_containers_are_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        config(slurm={"containerPackages": "mine"})
    (problem,) = refused.value.problems
    assert (problem.key, problem.what) == ("hyperpod:slurm.containerPackages", "no job may run in a container")
    assert problem.fix == "add slurm.containers: true, or leave it out"


def test_a_deployment_reports_it_beside_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "aws:region": "us-west-2",
        "hyperpod:slurm": '{"containerPackages": "nowhere"}',
        "hyperpod:clusterName": "NO",
    }
    monkeypatch.setattr("pulumi.runtime.config.get_config_env", lambda: values)
    with pytest.raises(ConfigError) as refused:
        load()
    found = [(problem.key, problem.what) for problem in refused.value.problems]
    assert ("hyperpod:slurm.containerPackages", "there is no folder nowhere") in found
    assert "hyperpod:clusterName" in {key for key, _ in found}
