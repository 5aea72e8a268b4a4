"""How many small mistakes in ``components/`` and ``lifecycle/`` the fast suite notices: ``make mutants``.

mutmut says which mistakes there are to make. A random sample of them, by a seed, is made in a copy of HEAD, one after
the other: the tests nearest to the file come first, then the rest of the fast suite, and the first failure ends it.
For ``lifecycle/training/`` the slow tests of the trainers follow, because only they run a model: that takes a Python
with PyTorch (``make node-packages``). mutmut's own runner plants every mutant in the source at once, behind a switch:
the nodes' scripts, which are shipped, compiled and read as text, are then other files than those under test.
"""

import argparse
import difflib
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("components", "lifecycle")
FAST = "not slow and not root and not kubernetes"
# The folder whose mistakes the fast suite cannot all notice, and the slow tests that run what is in it.
TRAINING, TRAINERS = "lifecycle/training/", "tests/jobs/test_trainers.py"
# A mutant that loops is noticed too.
_SECONDS = 600


@dataclass(frozen=True)
class Mutant:
    """One mistake: the file below the root, its whole text with the mistake, and the lines that differ."""

    file: str
    text: str
    diff: str


def mutants(file: Path, chance: random.Random) -> Iterator[Mutant]:
    """A file's mistakes as mutmut has them, in any order, but for those that only change the case of a string."""
    # Imported here, because every process of the tests imports this module and one of them makes mutants.
    from mutmut.mutation.file_mutation import create_mutations

    module, every, _, _ = create_mutations(str(file), file.read_text(encoding="utf-8"))
    for one in chance.sample(every, len(every)):
        text = module.deep_replace(one.original_node, one.mutated_node).code  # type: ignore[arg-type, attr-defined]
        if text.lower() != module.code.lower():
            changed = list(difflib.unified_diff(module.code.splitlines(), text.splitlines(), n=0, lineterm=""))[2:]
            yield Mutant(str(file.relative_to(ROOT)), text, "\n".join(changed))


def sample(folder: str, size: int, seed: int) -> list[Mutant]:
    """Some mistakes of a folder, by chance: as many of a file as its lines are of the folder's."""
    chance = random.Random(seed)
    files = sorted((ROOT / folder).rglob("*.py"))
    chosen = chance.choices(files, [file.read_text(encoding="utf-8").count("\n") for file in files], k=size)
    return [one for file in sorted(chosen) if (one := next(mutants(file, chance), None))]


def nearest(file: str, root: Path) -> list[str]:
    """Where tests of a file are, the likeliest to notice first."""
    folder, *rooms = Path(file).with_suffix("").parts
    named = [path for room in reversed(rooms) for path in sorted((root / "tests" / folder).rglob(f"test_{room}*.py"))]
    mirror = [root.joinpath("tests", folder, *rooms[:-1]), root / "tests" / folder, root / "tests" / "golden"]
    return [str(path.relative_to(root)) for path in dict.fromkeys((*named, *mirror)) if path.exists()]


def passes(root: Path, *where: str, marked: str = FAST) -> bool:
    """Whether these tests pass, on every core."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "auto", "--dist", "worksteal", "-m", marked, *where]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, timeout=_SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return False
    # 5: of these tests none is fast.
    return done.returncode in (0, 5)


def survives(root: Path, mutant: Mutant) -> bool:
    """Whether no test of the fast suite fails with the mistake, nor any of the trainers', where it is theirs."""
    file = root / mutant.file
    original = file.read_text(encoding="utf-8")
    file.write_text(mutant.text, encoding="utf-8")
    near = nearest(mutant.file, root)
    try:
        return (
            passes(root, *near)
            and passes(root, "tests", *(f"--ignore={one}" for one in near))
            and (not mutant.file.startswith(TRAINING) or passes(root, TRAINERS, marked="slow"))
        )
    finally:
        file.write_text(original, encoding="utf-8")


def main() -> int:
    """Run a sample. Returns 1 where the tests fail without any mistake."""
    parser = argparse.ArgumentParser(
        prog="make mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=20, help="mistakes for each folder (default 20)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default 1)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        copy = Path(temporary, "copy")
        # A repository of its own, because tests ask git which files there are.
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        if not passes(copy, "tests"):
            print("Tests fail without any mistake.", file=sys.stderr)
            return 1
        for folder in FOLDERS:
            chosen, survived = sample(folder, asked.sample, asked.seed), 0
            for mutant in chosen:
                alive = survives(copy, mutant)
                survived += alive
                print(f"{'SURVIVED' if alive else 'killed'} {mutant.file}\n{mutant.diff}", flush=True)
            print(f"{folder}: {len(chosen) - survived} of {len(chosen)} killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
