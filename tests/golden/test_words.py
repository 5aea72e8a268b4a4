"""Estimates and refusals of configurations match the golden files, and no problem is missing among the refusals.

So do the options of what runs on nodes.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from components.config import Problem
from components.schema.fields import FORMS
from tests.golden import files
from tests.golden.options import OPTIONS, options
from tests.golden.stacks import on_the_day
from tests.golden.words import ESTIMATES, REFUSALS, estimates, refusals, unlisted
from tests.support import ROOT

# A call of Problem: the file, its first and its last line.
Site = tuple[str, int, int]


def test_estimates_of_configurations_match_the_golden_files() -> None:
    with on_the_day():
        difference = files.told(files.read(ESTIMATES), estimates())
    assert not difference, f"tests/golden/estimates:\n{difference}"


def test_refusals_match_the_golden_files_which_have_every_problem_of_the_program() -> None:
    called: set[tuple[str, int]] = set()
    made = Problem.__init__

    def recorded(problem: Problem, **words: Any) -> None:
        caller = sys._getframe(1)
        called.add((caller.f_code.co_filename, caller.f_lineno))
        made(problem, **words)

    with on_the_day(), patch.object(Problem, "__init__", recorded):
        found = refusals()
    difference = files.told(files.read(REFUSALS), unlisted(found))
    assert not difference, f"tests/golden/refusals:\n{difference}"
    missing = [
        f"{Path(path).relative_to(ROOT)}, line {first}"
        for path, first, last in problems()
        if not any(file == path and first <= line <= last for file, line in called)
    ]
    assert missing == [], "no case of a BAD among those of tests/golden/words.py has these problems"
    told = {f"{subject}: {case}": all_of_it for subject, cases in found.items() for case, all_of_it in cases.items()}
    assert [case for case, said in told.items() if not said] == []
    said = "\n".join(problem for case in told.values() for problem in case)
    assert [form for form in FORMS.values() if f"{form.what}; {form.fix}" not in said] == []


def test_options_of_the_nodes_commands_and_trainers_match_the_golden_files() -> None:
    difference = files.told(files.read(OPTIONS), options())
    assert not difference, f"tests/golden/options:\n{difference}"


def problems() -> Iterator[Site]:
    """Every place in components/ that makes a problem."""
    for path in sorted((ROOT / "components").rglob("*.py")):
        text = path.read_text()
        if "Problem(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Problem":
                yield str(path), node.lineno, node.end_lineno or node.lineno
