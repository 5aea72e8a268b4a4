"""The stack's own lines of slurm.conf are refused with file and line where Slurm could not take them."""

import re

from components.slurm import conf_folder
from components.slurm.conf_folder import MOST_BYTES
from tests.components.config.refusals import Tree, told_of
from tests.support import ROOT

# By the line, what is said of it.
LINES = (
    "MaxJobCont=5",
    "Zzzzz=1",
    "slurmctldhost=x",
    "KillWait=1 StateSaveLocation=/x",
    "AccountingStoragePass=x",
    "NodeName=x CPUs=4",
    "PartitionName=hyperpod-system-maintenance",
    "PartitionName=gpu Nodes=ALL",
    "KillWait=1\nkillwait=2",
    "include other.conf",
    "KillWait 5",
    "MailProg=/bin/é",
)
BAD: dict[str, Tree] = {
    **{lines.replace("\n", ", then "): {"a.conf": f"# first\n{lines}\n"} for lines in LINES},
    "no folder": None,
    "an empty folder": {},
    "another of Slurm's files": {"cgroup.conf": ""},
    "a file of another kind": {"README.md": ""},
    "a name that begins with a hyphen": {"-x.conf": ""},
    "too many": {f"{number}.conf": "" for number in range(17)},
    "too large": {"a.conf": "#" * (MOST_BYTES + 1)},
}


def told(tree: Tree) -> list[str]:
    """Everything that is said of such a folder."""
    return told_of(tree, lambda folder: conf_folder.problems({"extraConf": folder}))


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
