"""Programs are found where users have them. If there are none, the message says how to get them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from rehearsal import patience
from rehearsal.kubernetes import binaries
from tests.rehearsal.command import main


def _program(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A bare machine: no programs, no cache, no Go."""
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
    assert main(["eks", "eks-gpu"]) == 2
    assert "not on this machine: etcd" in capsys.readouterr().err


def test_if_possible_says_what_is_missing_and_builds_nothing(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eks", "eks-gpu", "--if-possible"]) == 0
    assert "make kubernetes-tools" in capsys.readouterr().err
    assert not (bare / "cache").exists()


def test_a_slurm_stack_is_sent_to_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eks", "dev"]) == 2
    assert "hyperpod rehearse nodes" in capsys.readouterr().err
    assert main(["eks", "dev", "--if-possible"]) == 0


# Stands in for Go: records each build's packages, and creates a file for each in the output folder.
_GO = r"""#!/bin/sh
echo "$@" >> "{log}"
case "$1" in
mod) printf '{{"Dir": "{source}"}}' ;;
build)
  case "$*" in *"{broken}"*) printf 'a/package\n# a/package\nx.go:1: undefined: y\n' >&2; exit 1 ;; esac
  while [ "$1" != -o ]; do shift; done
  folder=$2; shift 2
  for package in "$@"; do
    name=$folder$(basename "${{package%/v3}}")
    echo "$package" >&2; echo built > "$name"; chmod +x "$name"
  done ;;
esac
"""
_QUESTION = """
				if meta.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
					base64EncodedInitialEventsListBlueprint := meta.GetAnnotations()[metav1.Gone]
					if len(base64EncodedInitialEventsListBlueprint) == 0 {
						return fmt.Errorf("missing")
					}
					return nil
				}
"""


def _go(bare: Path, *, broken: str = "nothing at all", question: str = _QUESTION) -> Path:
    """A stand-in for Go on PATH, which keeps its modules read-only as Go does. Returns the log of its commands."""
    source, log = bare / "source", bare / "go.log"
    for path in ("charts/kueue", "manifests/base/crds", "pkg/utils/informer"):
        (source / path).mkdir(parents=True)
    (source / "pkg/utils/informer/informer.go").write_text(question)
    (source / "pkg/utils/informer/informer.go").chmod(0o444)
    _program(bare / "bin", "go").write_text(_GO.format(log=log, source=source, broken=broken))
    for tool in ("sh", "basename", "chmod"):
        (bare / "bin" / tool).symlink_to(f"/bin/{tool}")
    return log


def test_go_runs_once_for_each_module_and_what_is_built_is_kept(bare: Path) -> None:
    log = _go(bare)
    found = binaries.find_all(Console(quiet=True))
    assert set(found) == set(binaries.PROGRAMS)
    assert binaries.missing() == []
    assert [line.split()[0] for line in log.read_text().splitlines()].count("build") == 2
    assert not list((bare / "cache").rglob("unfinished*"))
    assert binaries.build(["etcd"], Console(quiet=True)) == []


def test_a_build_that_fails_says_what_go_said_last_and_leaves_nothing_half_made(bare: Path) -> None:
    _go(bare, broken="cmd/kwok")
    with pytest.raises(binaries.Missing, match=r"undefined: y\nInstead, put etcd"):
        binaries.find_all(Console(quiet=True))
    assert binaries.find("etcd") is None
    assert not list((bare / "cache").rglob("unfinished*"))


def test_kwok_is_built_without_its_question_for_what_kubernetes_has_no_more(bare: Path) -> None:
    _go(bare)
    pins = binaries._with_own_kwok(bare / "kwok")
    assert f"replace sigs.k8s.io/kwok => {bare / 'kwok'}" in pins.read_text()
    text = (bare / "kwok/pkg/utils/informer/informer.go").read_text()
    assert "Blueprint" not in text
    assert text.splitlines()[1:] == [_QUESTION.splitlines()[1], *_QUESTION.splitlines()[6:]]


def test_another_kwok_is_not_changed_in_silence(bare: Path) -> None:
    _go(bare, question="package informer")
    with pytest.raises(binaries.Missing, match=r"informer\.go is not what it was"):
        binaries._with_own_kwok(bare / "kwok")


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
    from components.kubernetes.charts import KUEUE

    assert binaries.pinned("sigs.k8s.io/kueue") == f"v{KUEUE.version}"


def test_a_build_says_what_it_does_how_far_it_is_and_about_how_long_it_takes(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def go(programs: list[binaries.Program], say: Callable[[str], None]) -> None:
        for program in programs:
            say(program.package)
            _program(binaries.cache(program.module), program.name)
        time.sleep(0.2)

    monkeypatch.setattr(binaries, "_go_build", go)
    monkeypatch.setattr(binaries, "told", partial(patience.told, every=0.05))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    binaries.build(["etcd", "helm", "training-operator"], Console())
    said = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert said[0] == "Building 1 of 2: etcd, helm; once, in up to about 6 min on this machine"
    # On a busy machine a first line can come before the program is named.
    assert "still at it after 0 s, at helm.sh/helm/v3/cmd/helm" in said
    assert [line for line in said if line.startswith("Building 2")] == [
        "Building 2 of 2: training-operator; once, in up to about 1 min on this machine"
    ]
