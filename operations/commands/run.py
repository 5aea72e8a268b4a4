"""The verb ``run``: from a script of one's own to its log, with either scheduler."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from .. import target
from ..failures import bad_input
from ..jobs.choices import Choices
from ..jobs.specs import JOBS, own_job
from ..terminal import console
from .submitting import Following, Wanted, run, with_records

# Bytes of all files. Kubernetes takes a ConfigMap of 1 MiB at most ("ConfigMaps"); with Slurm 30 KB take a session.
_MOST = 256 * 1024
# Kubernetes appends "-worker-" and a number for the names of its Services, which have 63 characters at most.
_LONGEST = 45


@with_records
def run_command(
    stack: console.Stack,
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python script, for torchrun.")],
    choices: Choices,
    beside: Annotated[
        list[Path] | None, typer.Option("--with", metavar="FILE", help="A file beside the script. May be repeated.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The job's name (default: the script's).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be submitted.")] = False,
    *,
    following: Following,
) -> None:
    """Run a script of yours with torchrun, and follow its log.

    One process for each GPU or NeuronCore, with the variables that EFA and NCCL need there. /fsx is the shared file
    system: data, checkpoints and files that are larger belong there.

    \b
      hyperpod run slurm-gpu train.py --nodes 2 -a "--steps 500"
      hyperpod run eks-gpu train.py --with model.py --image IMAGE
      hyperpod run eks-gpu train.py --dry-run
    """
    files = _read([script, *(beside or [])])
    called = name or re.sub(r"[^a-z0-9]+", "-", script.stem.lower()).strip("-")
    if called in JOBS or not re.fullmatch(rf"[a-z](?:[a-z0-9-]{{0,{_LONGEST - 2}}}[a-z0-9])?", called):
        why = "is the name of a job of this project" if called in JOBS else "is not a job's name"
        raise bad_input(f'"{called}" {why}', f"--name: letters, digits and hyphens, {_LONGEST} at most")
    wanted = Wanted(target=target.load(stack), name=called, choices=choices, job=own_job(script.name), files=files)
    if dry_run:
        wanted.show(following.as_json)
    else:
        run(wanted, following)


def _read(paths: Sequence[Path]) -> dict[str, str]:
    """The files by their names. Raises Failure with everything that is wrong with them."""
    found: dict[str, str] = {}
    problems = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
            continue
        except ValueError:
            problems.append(f"{path} is no text")
            continue
        if path.name in (*found, "passwd") or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", path.name):
            problems.append(f"{path}: each file needs a name of its own, of letters, digits, dots, hyphens and _")
        found[path.name] = text
    if (size := sum(len(text.encode()) for text in found.values())) > _MOST:
        problems.append(f"{size} bytes of files; {_MOST} at most")
    if problems:
        large = size > _MOST or any(path.is_dir() for path in paths)
        raise bad_input("\n".join(problems), "data and folders belong on /fsx: see docs/data.md" if large else "")
    return found
