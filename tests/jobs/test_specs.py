"""The jobs of EKS: what their pods are given to run."""

import ast
from pathlib import Path

import pytest

from operations.jobs.specs import JOBS

ROOT = Path(__file__).parents[2]
# Where a trainer finds what it imports on a node of Slurm: beside it, and beside the others.
FOLDERS = ("jobs/slurm", "lifecycle/training")


def neighbours(script: str) -> set[str]:
    """The project's own files that a script imports, by their paths."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / script).read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found |= {path for name in names for folder in FOLDERS if (ROOT / (path := f"{folder}/{name}.py")).is_file()}
    return found


@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if job.scripts])
def test_a_job_brings_every_file_that_its_scripts_import(name: str) -> None:
    scripts = [script for script in JOBS[name].scripts if script.endswith(".py")]
    needed = set().union(*(neighbours(script) for script in scripts))
    assert needed <= set(scripts)


def test_what_a_script_imports_is_found() -> None:
    assert neighbours("jobs/slurm/fsdp_llama.py") == {
        "lifecycle/training/llama.py",
        "lifecycle/training/training_report.py",
    }
