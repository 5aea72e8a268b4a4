"""How many small mistakes in ``components/`` and ``lifecycle/`` the fast suite notices: ``make mutants``.

mutmut says which mistakes there are to make; a random sample of them, by a seed, is made in a copy of the tree, one
after the other. The tests that run the changed line come first, by coverage.py's record of one run without mistakes,
then those nearest to the file, and the rest of the fast suite last. The first failure ends it. What survives all that
below ``lifecycle/training/`` is tried with the slow tests of the trainers too, because only they run a model: that
takes a Python with PyTorch (``make node-packages``). mutmut's own runner is not used: it plants every mutant in the
source at once, behind a switch, and the nodes' scripts are shipped, compiled and read as text here.

What a run found is appended to ``mutants.csv``, and what survived to ``mutants-survivors.csv``, where a reader says why
a survivor is no mistake at all, or which test kills it now.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst as cst
    from mutmut.mutation.file_mutation import Mutation

ROOT = Path(__file__).parent.parent
HERE = Path(__file__).parent
FOLDERS = ("components", "lifecycle")
FAST = "not slow and not root and not kubernetes"
# The folder whose mistakes the fast suite cannot all notice, and the slow tests that run what is in it.
TRAINING, TRAINERS = "lifecycle/training/", "tests/jobs/test_trainers.py"
# What coverage.py writes in a tree, and how: which test ran a line, not only that one did.
RECORD = ".coverage"
_COVERAGE = (
    f"[run]\ndynamic_context = test_function\nsource =\n{''.join(f'    {folder}{chr(10)}' for folder in FOLDERS)}"
)
# A mutant that loops is noticed too. The run that is recorded has every test, in one process: about four minutes, and
# three times that on a slow machine.
_SECONDS, _RECORD_SECONDS = 600, 3600
_SUMMARY = (
    "date",
    "commit",
    "seed",
    "folder",
    "mutants",
    "sample",
    "tests",
    "killed",
    "survived",
    "percent",
    "seconds",
)
_SURVIVOR = ("date", "seed", "file", "line", "before", "after", "verdict")


@dataclass(frozen=True)
class Mutant:
    """One mistake: the file below the root, its whole text with the mistake, and the lines that differ."""

    file: str
    text: str
    line: int
    before: str
    after: str


def mutations(file: Path) -> tuple[cst.Module, list[Mutation]]:
    """A file's mistakes as mutmut has them. Of a string's three the two that only change its case are left out."""
    # Imported here, because every process of the tests imports this module and one of them makes mutants.
    from mutmut.mutation.file_mutation import create_mutations

    module, every, _, _ = create_mutations(str(file), file.read_text(encoding="utf-8"))
    return module, [one for one in every if not _only_case(one.original_node, one.mutated_node)]


def _only_case(before: cst.CSTNode, after: cst.CSTNode) -> bool:
    import libcst as cst

    strings = isinstance(before, cst.SimpleString) and isinstance(after, cst.SimpleString)
    return strings and before.value.lower() == after.value.lower()  # type: ignore[attr-defined]


def _made(file: Path, module: cst.Module, mutation: Mutation) -> Mutant:
    text = module.deep_replace(mutation.original_node, mutation.mutated_node).code  # type: ignore[arg-type, attr-defined]
    old, new = module.code.splitlines(), text.splitlines()
    line = next(number for number, (one, other) in enumerate(zip([*old, ""], [*new, ""], strict=False)) if one != other)
    changed = [line for line in difflib.unified_diff(old, new, n=0, lineterm="") if line[:3] not in ("---", "+++")]
    before, after = (next((one[1:].strip() for one in changed if one[0] == sign), "") for sign in "-+")
    return Mutant(str(file.relative_to(ROOT)), text, line + 1, before, after)


def sample(folder: str, size: int, seed: int) -> tuple[int, list[Mutant]]:
    """How many mistakes there are to make in a folder, and some of them, by chance."""
    known = {file: mutations(file) for file in sorted((ROOT / folder).rglob("*.py"))}
    places = [(file, number) for file, (_, every) in known.items() for number in range(len(every))]
    chosen = random.Random(seed).sample(places, min(size, len(places)))
    return len(places), [_made(file, known[file][0], known[file][1][number]) for file, number in sorted(chosen)]


def nearest(file: str, root: Path) -> list[str]:
    """Where tests of a file are, the likeliest to notice first."""
    folder, *rooms = Path(file).with_suffix("").parts
    named = [path for room in reversed(rooms) for path in sorted((root / "tests" / folder).rglob(f"test_{room}*.py"))]
    mirror = [root.joinpath("tests", folder, *rooms[:-1]), root / "tests" / folder, root / "tests" / "golden"]
    return [str(path.relative_to(root)) for path in dict.fromkeys((*named, *mirror)) if path.exists()]


def _pytest(
    root: Path, *arguments: str, under: tuple[str, ...] = (), marked: str = FAST, seconds: float = _SECONDS
) -> subprocess.CompletedProcess[str]:
    options = ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", marked]
    command = [sys.executable, "-m", *under, "pytest", *options, *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)


def running(root: Path, file: str, line: int) -> list[str]:
    """The tests that ran a line, by coverage.py's record in a tree; empty where there is none."""
    from coverage import CoverageData

    data = CoverageData(str(root / RECORD))
    data.read()
    contexts = data.contexts_by_lineno(str(root / file)).get(line, [])
    found = set()
    for context in contexts:
        *modules, test = context.split(".")
        # A fixture's lines belong to no test, and a class has no file.
        if test.startswith("test_") and (path := Path(*modules).with_suffix(".py")) and (root / path).is_file():
            found.add(f"{path}::{test}")
    return sorted(found)


def survives(root: Path, mutant: Mutant, only_near: bool) -> bool:
    """Whether no test of the fast suite, or of those that run the line or are nearest, fails with the mistake.

    Nor any of the trainers' slow tests, where it is theirs.
    """
    file = root / mutant.file
    original = file.read_text(encoding="utf-8")
    file.write_text(mutant.text, encoding="utf-8")
    near = nearest(mutant.file, root)
    rest = [] if only_near else ["tests", *(f"--ignore={one}" for one in near)]
    slow = [TRAINERS] if mutant.file.startswith(TRAINING) else []
    try:
        return all(
            _pytest(root, *where, marked=marked).returncode == 0
            for where, marked in (
                (running(root, mutant.file, mutant.line), FAST),
                (near, FAST),
                (rest, FAST),
                (slow, "slow"),
            )
            if where
        )
    except subprocess.TimeoutExpired:
        return False
    finally:
        file.write_text(original, encoding="utf-8")


def _copy_of_the_tree(place: Path) -> Path:
    """What git has or would take, as it is here now."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    # Tests ask git which files there are.
    subprocess.run(["git", "init", "-q", "."], cwd=place, check=True)
    subprocess.run(["git", "add", "--all", "."], cwd=place, check=True)
    return place


def _recorded(copies: list[Path], near: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the tests in the first tree; every tree gets the record of which test ran which line, in its own paths."""
    from coverage import CoverageData

    first = copies[0]
    (first / ".coveragerc").write_text(_COVERAGE, encoding="utf-8")
    done = _pytest(first, *near, under=("coverage", "run", "-m"), seconds=_RECORD_SECONDS)
    data = CoverageData(str(first / RECORD))
    data.read()
    for other in copies[1:]:

        def moved(path: str, other: Path = other) -> str:
            return path.replace(str(first), str(other), 1)

        copy = CoverageData(str(other / RECORD))
        copy.update(data, map_path=moved)
        copy.write()
    return done


def _tried(root: Path, mutants_here: list[Mutant], only_near: bool) -> list[tuple[Mutant, bool]]:
    found = []
    for number, mutant in enumerate(mutants_here, 1):
        alive = survives(root, mutant, only_near)
        found.append((mutant, alive))
        print(f"{number}/{len(mutants_here)} {'SURVIVED' if alive else 'killed'}", end=" ")
        print(f"{mutant.file}:{mutant.line}: {mutant.before} -> {mutant.after}", flush=True)
    return found


def _append(name: str, columns: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    path = HERE / name
    fresh = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([columns, *rows] if fresh else rows)


def main() -> int:
    """Run a sample. Returns 1 where the tests fail without any mistake."""
    parser = argparse.ArgumentParser(
        prog="make mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=20, help="mistakes for each folder (default 20)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default 1)")
    parser.add_argument("--folder", choices=FOLDERS, action="append", help="only there (default both)")
    parser.add_argument("--workers", type=int, default=2, help="copies of the tree that work at a time (default 2)")
    parser.add_argument("--near", action="store_true", help="leave out the tests of other folders: faster, kills fewer")
    asked = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    today = datetime.now(UTC).date().isoformat()
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        copies = [_copy_of_the_tree(Path(temporary, str(number))) for number in range(asked.workers)]
        print("One run without mistakes, which records the lines of each test: minutes ...", flush=True)
        near = ["tests/components", "tests/lifecycle", "tests/golden"] if asked.near else ["tests"]
        folders = asked.folder or FOLDERS
        baseline = _recorded(copies, near)
        if baseline.returncode == 0 and any(TRAINING.startswith(f"{folder}/") for folder in folders):
            baseline = _pytest(copies[0], TRAINERS, marked="slow")
        if baseline.returncode:
            print(f"Tests fail without any mistake:\n{baseline.stdout}", file=sys.stderr)
            return 1
        for folder in folders:
            began = time.monotonic()
            every, chosen = sample(folder, asked.sample, asked.seed)
            parts = [chosen[number :: asked.workers] for number in range(asked.workers)]
            with ProcessPoolExecutor(asked.workers) as pool:
                found = [one for part in pool.map(_tried, copies, parts, [asked.near] * asked.workers) for one in part]
            alive = [mutant for mutant, survived in found if survived]
            killed = len(found) - len(alive)
            percent, seconds = round(100 * killed / max(len(found), 1)), round(time.monotonic() - began)
            tests = "nearest" if asked.near else "fast suite"
            if TRAINING.startswith(f"{folder}/"):
                tests += " and trainers"
            row = (
                today,
                commit.strip(),
                asked.seed,
                folder,
                every,
                len(found),
                tests,
                killed,
                len(alive),
                percent,
                seconds,
            )
            _append("mutants.csv", _SUMMARY, [row])
            rows = [(today, asked.seed, one.file, one.line, one.before, one.after, "") for one in alive]
            _append("mutants-survivors.csv", _SURVIVOR, rows)  # type: ignore[arg-type]
            print(f"{folder}: {killed} of {len(found)} killed, out of {every} there are")
    return 0


if __name__ == "__main__":
    sys.exit(main())
