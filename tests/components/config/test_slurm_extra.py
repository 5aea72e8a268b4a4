"""The stack's own lines of slurm.conf are refused with file and line where Slurm could not take them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from components.config import slurm_extra
from components.config.slurm_extra import KEY, MOST_BYTES, MOST_FILES
from tests.support import ROOT, config


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "slurm.conf.d"
    found.mkdir()
    return found


def told(folder: Path) -> list[str]:
    """What is said of the folder, without its path."""
    found = slurm_extra.problems({"extraConf": str(folder)})
    assert all(problem.key == KEY for problem in found)
    return [f"{problem.what}; {problem.fix}".replace(f"{folder}/", "") for problem in found]


# By the line, what is said of it.
BAD = {
    "MaxJobCont=5": "Slurm 24.11 has no parameter MaxJobCont; did you mean MaxJobCount?",
    "Zzzzz=1": "Slurm 24.11 has no parameter Zzzzz; a parameter of slurm.conf(5)",
    "slurmctldhost=x": "SlurmctldHost cannot be set here; HyperPod's agent writes it",
    "KillWait=1 StateSaveLocation=/x": "StateSaveLocation cannot be set here; HyperPod's agent writes it",
    "AccountingStoragePass=x": "AccountingStoragePass cannot be set here; hyperpod:slurm.accounting sets it",
    "NodeName=x CPUs=4": "HyperPod's agent writes the lines of nodes; leave it out",
    "PartitionName=gpu Nodes=ALL": "the cluster has a partition gpu already; another name; PartitionName=DEFAULT sets",
    "KillWait=1\nkillwait=2": "KillWait is set already: a.conf, line 2; set it once",
    "include other.conf": '"include" is not of the form Parameter=Value; one or more of them; files of the folder',
    "KillWait 5": '"KillWait" is not of the form Parameter=Value',
    "MailProg=/bin/é": "has a character that is not plain ASCII",
}


@pytest.mark.parametrize("lines", BAD)
def test_a_line_that_cannot_be_is_refused_with_file_and_line(folder: Path, lines: str) -> None:
    (folder / "a.conf").write_text(f"# first\n{lines}\n")
    (said,) = told(folder)
    assert said.startswith(f"a.conf, line {1 + len(lines.splitlines())}: {BAD[lines]}")


def test_all_lines_of_all_files_are_told_of_at_once(folder: Path) -> None:
    (folder / "a.conf").write_text("MaxJobCount=5\\\n\nNope=1 # Nope=2\n")
    (folder / "b.conf").write_text("maxjobcount=6\nSlurmUser=root\n")
    assert [re.match(r"[ab]\.conf, line \d", line) and line[:14] for line in told(folder)] == [
        "a.conf, line 3", "b.conf, line 1", "b.conf, line 2",
    ]  # fmt: skip


def test_the_folder_is_one_of_conf_files(folder: Path, tmp_path: Path) -> None:
    assert told(folder) == [f"{folder} is empty; put a file in it, or leave the key out"]
    nowhere = tmp_path / "nowhere"
    fix = "a folder of files called *.conf, relative to the project's folder"
    assert told(nowhere) == [f"{nowhere} does not exist; {fix}"]
    for name in ("README.md", "cgroup.conf", "-x.conf"):
        (folder / name).write_text("")
    assert [line.split(" ")[0] for line in told(folder)] == ["-x.conf", "README.md", "cgroup.conf"]
    for path in folder.iterdir():
        path.unlink()
    for number in range(MOST_FILES + 1):
        (folder / f"{number}.conf").write_text("#" * (MOST_BYTES // MOST_FILES))
    assert len(told(folder)) == 2


def test_without_the_key_nothing_is_said() -> None:
    for raw in (None, {}, "no JSON", {"extraConf": ""}):
        assert slurm_extra.problems(raw) == []


def test_the_example_is_a_good_one() -> None:
    assert told(ROOT / "docs/slurm.conf.d") == []
    assert [path.name for path in slurm_extra.files(config("dev", slurm={"extraConf": "docs/slurm.conf.d"}).settings)]
