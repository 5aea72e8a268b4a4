"""Tests on the controller whether slurmctld starts with the stack's own lines, before it uses them.

slurmctld has no option for that (slurmctld(8)), and one that runs in the foreground, as HyperPod's unit does, ends at
`scontrol reconfigure` if a plugin is missing (seen in the rehearsal). So a second one is started on a copy of the
configuration, with a separate network and a separate state, and ended as soon as it runs. It takes 0.1 s.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from typing import Any, List, Sequence, Tuple

from ..facts.model import ConfFile, Instance, NodeRecord
from ..host.errors import StepError
from ..host.host import Host
from . import configure

FOLDER = "/run/hyperpod-trial"
SECONDS = 15
# Later ones count. Nothing outside the folder is written, and no program of the cluster's is run.
_APART = """
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/pid
SlurmctldLogFile={folder}/log
SlurmctldDebug=info
SlurmctldPrimaryOnProg=/bin/true
SlurmctldPrimaryOffProg=/bin/true
"""
# Settings with which slurmctld does not start without a database, as in this test.
_OF_THE_DATABASE = re.compile(
    r'^[ \t]*(?:AccountingStorage\w*|PriorityWeightTRES)[ \t]*=.*$|\bTRESBillingWeights[ \t]*=[ \t]*(?:"[^"\n]*"|\S+)',
    re.M | re.I,
)
# Its last line after any error.
_LAST_WORDS = re.compile(r"Unable to process configuration file|specified more than once|MailProg|\"Include\" failed")


class CannotTry(Exception):
    """The test has no result: slurmctld would not start without the lines either, or did not answer in time."""


def refusal(host: Host, record: NodeRecord, instances: Sequence[Instance], files: Sequence[ConfFile]) -> str:
    """Return the first line that keeps slurmctld from starting, and its error; empty if none does. Raises CannotTry."""

    def tried(count: int) -> str:
        return _startup_error(host, record, instances, _first(files, count))

    whole = sum(len(one.text.splitlines()) for one in files)
    words = tried(whole)
    if not words:
        return ""
    if alone := tried(0):
        raise CannotTry(alone)
    # The fewest lines from the beginning with which it does not start: the last of them is the one.
    good, bad = 0, whole
    while bad - good > 1:
        middle = (good + bad) // 2
        if said := tried(middle):
            bad, words = middle, said
        else:
            good = middle
    name, number = _place(files, bad)
    return f"{name}, line {number}: {words}"


def _first(files: Sequence[ConfFile], count: int) -> List[ConfFile]:
    """Return the files up to a number of lines."""
    found = []
    for one in files:
        lines = one.text.splitlines()[: max(count, 0)]
        count -= len(one.text.splitlines())
        found.append(dataclasses.replace(one, text="".join(f"{line}\n" for line in lines)))
    return found


def _place(files: Sequence[ConfFile], count: int) -> Tuple[str, int]:
    """Return the file and line of the line with this number."""
    for one in files:
        lines = len(one.text.splitlines())
        if count <= lines:
            return one.name, count
        count -= lines
    raise AssertionError(count)


def _startup_error(host: Host, record: NodeRecord, instances: Sequence[Instance], files: Sequence[ConfFile]) -> str:
    """Return why slurmctld does not start with these files; empty if it does. Raises CannotTry."""
    etc, apart = host.settings.slurm_etc, _with_other_folder(host)
    host.run("rm", "-rf", str(host.path(FOLDER)))
    try:
        apart.folder(f"{FOLDER}/state")
        for path in host.path(etc).iterdir():
            # slurmdbd's own file may have a password.
            if path.is_file() and path.name != "slurmdbd.conf":
                apart.write_bytes(f"{FOLDER}/{path.name}", path.read_bytes())
        configure.configure(apart, record, instances, files)
        conf = configure.read(host)
        for path in apart.path(FOLDER).glob("*.conf"):
            text = apart.read(f"{FOLDER}/{path.name}") or ""
            apart.write(f"{FOLDER}/{path.name}", _OF_THE_DATABASE.sub("", text))
        folder = str(host.path(FOLDER))
        text = apart.read(f"{FOLDER}/slurm.conf") or ""
        apart.write(f"{FOLDER}/slurm.conf", text + _APART.format(folder=folder))
        host.run("chown", "-R", conf.get("SlurmUser", "root"), folder)
        return _asked(host, f"{folder}/slurm.conf")
    finally:
        host.run("rm", "-rf", str(host.path(FOLDER)))


def _with_other_folder(host: Host) -> Host:
    """Return the same node with another folder for Slurm's configuration; files there do not change the node."""
    apart: Any = copy.copy(host)
    apart.settings = dataclasses.replace(host.settings, slurm_etc=FOLDER)
    apart.changes = []
    return apart  # type: ignore[no-any-return]


def _asked(host: Host, conf: str) -> str:
    address = (host.addresses() or ["127.0.0.2"])[0]
    script = f"{host.settings.install_folder}/bin/hyperpod-try-conf"
    try:
        done = host.run("unshare", "--net", script, conf, address, str(SECONDS), check=False, timeout=SECONDS + 10)
    except StepError as error:
        raise CannotTry(str(error)) from None
    if done.code == 0:
        return ""
    if done.code != 1:
        raise CannotTry(f"slurmctld did not start in a network of its own: {done.reason}")
    said = [line.split("slurmctld: ")[-1] for line in done.out.splitlines()]
    telling = [line for line in said if not _LAST_WORDS.search(line)]
    fatal = [line for line in telling if line.startswith("fatal: ")]
    return (fatal + telling + said + ["it ended without a message"])[0].replace(f"{host.path(FOLDER)}/", "")
