"""Programs are found where their users have them, and a machine without any is told how to get them."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from rehearsal.kubernetes import binaries
from rehearsal.kubernetes.cli import CANNOT, PASSED, main


def _program(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with nothing: no programs, no cache, no Go."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def test_assets_come_before_path_and_path_before_the_cache(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert binaries.find("etcd") is None
    cached = _program(binaries.cache("kubernetes"), "etcd")
    assert binaries.find("etcd") == cached
    on_path = _program(bare / "bin", "etcd")
    assert binaries.find("etcd") == on_path
    asset = _program(bare / "assets", "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(bare / "assets"))
    assert binaries.find("etcd") == asset


def test_operators_are_the_pinned_ones_whatever_is_on_path(bare: Path) -> None:
    _program(bare / "bin", "kueue")
    assert binaries.find("kueue") is None


def test_without_programs_and_without_go_it_says_how_to_get_them(bare: Path) -> None:
    with pytest.raises(binaries.Missing, match=r"KUBEBUILDER_ASSETS.*Go 1.25.*make kubernetes-tools"):
        binaries.find_all(Console(quiet=True))


def test_the_command_ends_with_two_where_programs_are_missing(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bare / "bin").mkdir()
    for tool in ("unshare", "true"):
        (bare / "bin" / tool).symlink_to(f"/usr/bin/{tool}")
    assert main(["--stack", "eks-gpu"]) == CANNOT
    assert "not on this machine: etcd" in capsys.readouterr().err


def test_if_possible_says_what_is_missing_and_builds_nothing(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stack", "eks-gpu", "--if-possible"]) == PASSED
    assert "make kubernetes-tools" in capsys.readouterr().err
    assert not (bare / "cache").exists()


def test_a_slurm_stack_is_sent_to_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stack", "dev"]) == CANNOT
    assert "python -m rehearsal nodes" in capsys.readouterr().err
    assert main(["--stack", "dev", "--if-possible"]) == PASSED


def test_a_new_pin_is_a_new_folder(bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for text in ("one", "two"):
        (tmp_path / text / "kubernetes").mkdir(parents=True)
        (tmp_path / text / "kubernetes" / "go.mod").write_text(text)
        (tmp_path / text / "kubernetes" / "go.sum").write_text("")
    folders = set()
    for text in ("one", "two"):
        monkeypatch.setattr(binaries, "_TOOLS", tmp_path / text)
        folders.add(binaries.cache("kubernetes"))
    assert len(folders) == 2


def test_the_pins_agree_with_the_charts_that_the_program_installs() -> None:
    from components.charts import KUEUE

    assert binaries.pinned("sigs.k8s.io/kueue") == f"v{KUEUE.version}"
