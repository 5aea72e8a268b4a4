"""The stack's own lines of slurm.conf are refused with file and line where Slurm could not take them."""

from __future__ import annotations

import re

from components.slurm import conf_folder
from components.slurm.conf_folder import KEY, MOST_BYTES
from tests.components.config.refusals import Tree, told_of
from tests.rows import each
from tests.support import ROOT

# By the line, what is said of it.
LINES = {
    "MaxJobCont=5": "Slurm 25.11 has no parameter MaxJobCont; did you mean MaxJobCount?",
    "Zzzzz=1": "Slurm 25.11 has no parameter Zzzzz; a parameter of slurm.conf(5)",
    "slurmctldhost=x": "SlurmctldHost cannot be set here; HyperPod's agent writes it",
    "KillWait=1 StateSaveLocation=/x": "StateSaveLocation cannot be set here; HyperPod's agent writes it",
    "AccountingStoragePass=x": "AccountingStoragePass cannot be set here; hyperpod:slurm.accounting sets it",
    "NodeName=x CPUs=4": "HyperPod's agent writes the lines of nodes; leave it out",
    "PartitionName=hyperpod-system-maintenance": "the cluster has a partition hyperpod-system-maintenance already",
    "PartitionName=gpu Nodes=ALL": "the cluster has a partition gpu already; another name; PartitionName=DEFAULT sets",
    "KillWait=1\nkillwait=2": "KillWait is set already: mine/a.conf, line 2; set it once",
    "include other.conf": '"include" is not of the form Parameter=Value; one or more of them; files of the folder',
    "KillWait 5": '"KillWait" is not of the form Parameter=Value',
    "MailProg=/bin/é": "has a character that is not plain ASCII",
}


BAD: dict[str, tuple[Tree, str]] = {
    **{
        lines.replace("\n", ", then "): (
            {"a.conf": f"# first\n{lines}\n"},
            f"mine/a.conf, line {1 + len(lines.splitlines())}: {said}",
        )
        for lines, said in LINES.items()
    },
    "no folder": (None, "mine does not exist; a folder of files called *.conf, relative to the project's folder"),
    "an empty folder": ({}, "mine is empty; put a file in it, or leave the key out"),
    "another of Slurm's files": ({"cgroup.conf": ""}, "mine/cgroup.conf is none of its files; lines of slurm.conf"),
    "a file of another kind": ({"README.md": ""}, "mine/README.md is none of its files"),
    "a name that begins with a hyphen": ({"-x.conf": ""}, "mine/-x.conf is none of its files"),
    "too many": ({f"{number}.conf": "" for number in range(17)}, "mine has 17 files; at most 16"),
    "too large": ({"a.conf": "#" * (MOST_BYTES + 1)}, "mine has 65537 bytes; at most 65536"),
}


def told(tree: Tree) -> list[str]:
    """Everything that is said of such a folder."""
    return told_of(tree, lambda folder: conf_folder.problems({"extraConf": folder}))


@each(BAD)
def test_what_slurm_could_not_take_is_refused_with_file_and_line(tree: Tree, said: str) -> None:
    (problem,) = told(tree)
    assert problem.startswith(f"{KEY}: {said}")


def test_all_lines_of_all_files_are_told_of_at_once() -> None:
    first, second = "MaxJobCount=5\\\n\nNope=1 # Nope=2\n", "maxjobcount=6\nSlurmUser=root\n"
    found = told({"a.conf": first, "b.conf": second})
    assert [re.search(r"[ab]\.conf, line \d", line).group() for line in found] == [  # type: ignore[union-attr]
        "a.conf, line 3", "b.conf, line 1", "b.conf, line 2",
    ]  # fmt: skip


def test_without_the_key_nothing_is_said() -> None:
    for raw in (None, {}, "no JSON", {"extraConf": ""}):
        assert conf_folder.problems(raw) == []


def test_the_example_is_a_good_one() -> None:
    assert conf_folder.problems({"extraConf": str(ROOT / "docs/slurm.conf.d")}) == []
    assert [path.name for path in conf_folder.files("docs/slurm.conf.d")]


def test_a_parameter_whose_heading_in_the_manual_has_its_form_is_known_too() -> None:
    """slurm.conf(5): "GpuFreqDef=[<type]=value>..." and "DataParserParameters=<data_parser>", of all."""
    assert told({"a.conf": "GpuFreqDef=medium,memory=high\nDataParserParameters=v0.0.42+fast\n"}) == []


def test_parameters_of_the_images_release_are_taken_and_those_that_it_dropped_are_not() -> None:
    """slurm.conf(5) of 25.11; its release notes: "NamespaceType replaces JobContainerType", which it still reads."""
    new = "MetricsType=metrics/openmetrics\nPrologTimeout=60\nEpilogTimeout=60\nCliFilterParameters=x\n"
    assert told({"a.conf": f"{new}NamespaceType=namespace/tmpfs\nJobContainerType=job_container/tmpfs\n"}) == []
    (gone,) = told({"a.conf": "GetEnvTimeout=5\n"})
    assert gone.endswith("GetEnvTimeout cannot be set here; Slurm 25.11 has it no more: leave it out")
    # Of the release after.
    (later,) = told({"a.conf": "LicenseParameters=x\n"})
    assert "Slurm 25.11 has no parameter LicenseParameters" in later
