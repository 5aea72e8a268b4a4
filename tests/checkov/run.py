"""What checkov finds in everything that golden stacks deploy, in their jobs, the jobs' image and the sample workflow.

checkov pins some ninety packages, so it lives in an environment of its own, in ``~/.cache/hyperpod-tools``. It looks
nothing up: its rules are in the package.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from components.catalogue.rows import read
from operations.failures import Failure, cannot_know
from tests.checkov.translate import write
from tests.golden.stacks import GOLDEN
from tests.support import ROOT

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
_FRAMEWORKS = ("terraform", "cloudformation", "kubernetes", "dockerfile", "github_actions")
_UV = Path(sys.executable).with_name("uv")


@dataclass(frozen=True)
class Finding:
    """A rule, by its id, and the resource that does not follow it. ``stack`` is empty for what belongs to none."""

    check: str
    resource: str
    stack: str
    title: str


@dataclass(frozen=True)
class Accepted:
    """A finding that is none, and why. ``resource`` is a pattern; ``unless``: a key which, where a stack sets it, mends
    the finding, so that it is none only without.
    """

    check: str
    resource: str
    reason: str
    unless: str = ""

    def explains(self, finding: Finding) -> bool:
        """Whether it is about that finding."""
        if self.check != finding.check or not fnmatchcase(finding.resource, self.resource):
            return False
        return not (self.unless and finding.stack and is_set(finding.stack, self.unless))


def is_set(stack: str, key: str) -> bool:
    """Whether a golden stack's configuration has a key."""
    value: Any = GOLDEN[stack].settings
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return bool(value)


def accepted() -> tuple[Accepted, ...]:
    """The table of findings that are none."""
    return read(HERE / "accepted.csv", Accepted)


def program() -> Path:
    """checkov, installed if it is not there. Raises Failure where its packages are out of reach."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hyperpod-tools"
    folder = cache / f"checkov-{hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]}"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        python = str(folder / "bin" / "python")
        for command in (
            ["venv", "--quiet", "--python", sys.executable, str(folder)],
            ["pip", "install", "--quiet", "--require-hashes", "--python", python, "-r", str(REQUIREMENTS)],
        ):
            made = subprocess.run([_UV, *command], capture_output=True, text=True, check=False)
            if made.returncode:
                raise cannot_know(f"checkov cannot be installed: {made.stderr.strip().splitlines()[-1]}")
        (folder / "ready").touch()
    return folder / "bin" / "checkov"


def findings() -> tuple[list[Finding], int]:
    """What checkov finds, and how many rules it found followed. Raises Failure if it could not read everything."""
    with tempfile.TemporaryDirectory(prefix="checkov-") as scratch:
        folder = Path(scratch)
        for name in GOLDEN:
            write(name, folder / name)
        shutil.copytree(ROOT / "jobs" / "image", folder / "image")
        workflows = folder / ".github" / "workflows"
        workflows.mkdir(parents=True)
        shutil.copy(ROOT / "docs" / "github-actions.yml", workflows)
        command = [str(program()), "--directory", scratch, "--framework", *_FRAMEWORKS, "--output", "json", "--compact"]
        ran = subprocess.run(
            [*command, "--quiet", "--skip-download", "--soft-fail"], capture_output=True, text=True, check=False
        )
        try:
            answer = json.loads(ran.stdout)
        except ValueError:
            raise Failure(f"checkov: {(ran.stderr.strip().splitlines() or ['no answer'])[-1]}") from None
        reports = answer if isinstance(answer, list) else [answer]
        unread = [path for report in reports for path in report["results"].get("parsing_errors", [])]
        if unread or ran.returncode:
            raise Failure(f"checkov cannot read {', '.join(unread) or 'its input'}: {ran.stderr.strip()[-500:]}")
        found = {one for report in reports for one in _failed(report, folder)}
    order = sorted(found, key=lambda one: (one.check, one.resource, one.stack))
    return order, sum(report["summary"]["passed"] for report in reports)


def _failed(report: dict[str, Any], folder: Path) -> Iterator[Finding]:
    for one in report["results"]["failed_checks"]:
        place = Path(one["file_abs_path"]).resolve().relative_to(folder.resolve()).parts[0]
        stack = place if place in GOLDEN else ""
        resource = one["resource"] if stack else f"{place} {one['resource'].rsplit('.', 1)[-1]}"
        yield Finding(check=one["check_id"], resource=resource, stack=stack, title=one["check_name"])
