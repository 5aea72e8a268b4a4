"""The folder of the stack's own additions to slurm.conf, ``slurm.extraConf``: its files, and their problems.

The folder is on the machine that deploys, so only a deployment reads it. This refuses what can be known without Slurm.
The controller itself tries every line before it uses any (lifecycle/hyperpod_node/slurm/trial.py).
"""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hyperpod_node.slurm.partitions import RESERVED

from ..catalogue.accelerators import ACCELERATORS
from ..catalogue.slurm_parameters import PARAMETERS, RELEASE
from ..schema.folders import check_file_count, check_folder_exists, visible
from ..schema.problems import Problem

KEY = "hyperpod:slurm.extraConf"
# Every download of a node has them.
MOST_FILES, MOST_BYTES = 16, 1 << 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}\.conf")
# Other files of Slurm's, which it reads by their own names.
_OTHERS = frozenset(
    "acct_gather burst_buffer cgroup gres helpers job_container knl mpi oci plugstack slurmdbd topology".split()  # noqa: SIM905
)
_PAIR = re.compile(r'(\w+)\s*[-+]?=\s*("[^"]*"|\S+)')
_PRINTED = re.compile(r"[ -~\t]*")
# Lines that describe something, by their first word, and those of them that HyperPod's agent writes.
_THINGS = {"partitionname", "nodeset", "downnodes", "nodename", "frontendname"}
_AGENTS = {"nodename", "frontendname"}
# HyperPod's agent makes one of all nodes, one of those that it tests, and one for each that a group names.
_PARTITIONS = {*RESERVED[1:], *(one.slurm_partition for one in ACCELERATORS.values())}


def files(folder: str | None) -> list[Path]:
    """Return the files, in the order in which Slurm reads them."""
    return visible(Path(folder)) if folder else []


def problems(slurm: Any) -> list[Problem]:
    """Yield every problem of the folder, if the value of ``hyperpod:slurm`` names one."""
    folder = slurm.get("extraConf") if isinstance(slurm, dict) else None
    return list(_problems(Path(folder))) if folder and isinstance(folder, str) else []


def _problems(folder: Path) -> Iterator[Problem]:
    if not folder.is_dir():
        yield from check_folder_exists(KEY, folder, "a folder of files called *.conf, relative to the project's folder")
        return
    paths = visible(folder)
    yield from check_file_count(KEY, folder, len(paths), MOST_FILES, "file")
    seen: dict[str, str] = {}
    size = 0
    for path in paths:
        if not path.is_file() or not _NAME.fullmatch(path.name) or path.stem in _OTHERS:
            fix = "lines of slurm.conf in files called *.conf; Slurm's other files cannot be added"
            yield Problem(key=KEY, what=f"{path} is not one of its files", fix=fix)
            continue
        content = path.read_bytes()
        size += len(content)
        for number, what, fix in _problems_in_text(content.decode(errors="replace"), str(path), seen):
            yield Problem(key=KEY, what=f"{path}, line {number}: {what}", fix=fix)
    if size > MOST_BYTES:
        yield Problem(key=KEY, what=f"{folder} has {size} bytes", fix=f"at most {MOST_BYTES}")


def _problems_in_text(text: str, path: str, seen: dict[str, str]) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the mistake and a correct value. ``seen``: where each parameter is set so far."""
    for number, line in _logical_lines(text):
        if not _PRINTED.fullmatch(line):
            yield number, "has a character that is not plain ASCII", "only letters, digits and signs of ASCII"
            continue
        pairs = _PAIR.findall(line)
        rest = _PAIR.sub("", line).split()
        if not pairs or rest:
            what = f'"{(rest or [line])[0]}" is not of the form Parameter=Value'
            yield number, what, "one or more of them; files of the folder cannot include others"
            continue
        first = pairs[0][0].lower()
        if first in _THINGS:
            yield from ((number, *found) for found in _of_thing(first, pairs[0][1].strip('"')))
            continue
        for name, _ in pairs:
            yield from ((number, *found) for found in _of_parameter(name, f"{path}, line {number}", seen))


def _of_thing(kind: str, name: str) -> Iterator[tuple[str, str]]:
    if kind in _AGENTS:
        yield "HyperPod's agent writes the lines of nodes", "leave it out"
    elif kind == "partitionname" and name in _PARTITIONS:
        fix = "another name; PartitionName=DEFAULT sets what the others begin with"
        yield f"the cluster has a partition {name} already", fix


def _of_parameter(name: str, where: str, seen: dict[str, str]) -> Iterator[tuple[str, str]]:
    known = PARAMETERS.get(name.lower())
    if known is None:
        near = difflib.get_close_matches(name.lower(), PARAMETERS, n=1)
        fix = f"did you mean {PARAMETERS[near[0]].name}?" if near else "a parameter of slurm.conf(5)"
        yield f"Slurm {RELEASE} has no parameter {name}", fix
    elif known.instead:
        yield f"{known.name} cannot be set here", known.instead
    elif before := seen.get(name.lower()):
        yield f"{known.name} is set already: {before}", "set it once; Slurm would take the last one"
    else:
        seen[name.lower()] = where


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Return lines with the number of the first, without comments; a backslash at the end continues a line
    (slurm.conf(5)).
    """
    started, begun = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        started = started or number
        begun += re.sub(r"(?<!\\)#.*", "", line)
        if begun.endswith("\\"):
            begun = begun[:-1] + " "
            continue
        if begun.strip():
            yield started, begun.strip()
        started, begun = 0, ""
    if begun.strip():
        yield started, begun.strip()
