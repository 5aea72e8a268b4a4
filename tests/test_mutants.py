"""The benchmark that makes mistakes makes them one at a time, and asks the nearest tests first."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from benchmarks import mutants
from tests.support import ROOT


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    path = tmp_path / "components" / "one.py"
    path.parent.mkdir()
    path.write_text('def one() -> str:\n    return call("a", tags=2)\n')
    return path


# mutmut itself takes a second to load.
@pytest.mark.slow
def test_a_mistake_is_one_place_the_case_of_a_string_is_none_and_a_seed_says_which(file: Path) -> None:
    found = list(mutants.mutants(file, Random(1)))
    assert {one.text.splitlines()[1].strip() for one in found} == {
        'return call("XXaXX", tags=2)',
        'return call("a", tags=3)',
        "return call(None, tags=2)",
        'return call("a", tags=None)',
        "return call(tags=2)",
        'return call("a", )',
    }
    assert {one.diff.splitlines()[1] for one in found} == {'-    return call("a", tags=2)'}
    chosen = mutants.sample("components", 3, seed=5)
    assert len(chosen) == 3
    assert set(chosen) <= set(found)
    assert chosen == mutants.sample("components", 3, seed=5)


def test_the_nearest_tests_come_first() -> None:
    found = mutants.nearest("components/config/model.py", ROOT)
    assert found[0] == "tests/components/config/test_config.py"
    assert found[-2:] == ["tests/components", "tests/golden"]


@pytest.mark.parametrize("folder", ["components", "lifecycle/training"])
def test_a_mistake_is_made_while_tests_run_and_never_after_and_the_trainers_have_slow_tests(
    file: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    root, asked = file.parents[1], []
    mutated = root / folder / "one.py"
    mutated.parent.mkdir(parents=True, exist_ok=True)
    mutated.write_text("right")

    def run(_: Path, *where: str, marked: str = mutants.FAST) -> bool:
        assert mutated.read_text() == "wrong"
        asked.append(marked)
        return marked == mutants.FAST

    monkeypatch.setattr(mutants, "passes", run)
    survived = mutants.survives(root, mutants.Mutant(f"{folder}/one.py", "wrong", ""))
    assert survived == (folder == "components")
    assert asked == [mutants.FAST, mutants.FAST, *(["slow"] if folder != "components" else [])]
    assert mutated.read_text() == "right"
