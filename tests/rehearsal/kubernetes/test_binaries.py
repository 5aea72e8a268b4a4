"""Programs are found where users have them. If there are none, the message says how to get them."""

from pathlib import Path

import pytest
from rich.console import Console

from rehearsal.kubernetes import binaries
from tests.rehearsal.command import main
from tests.support import ROOT


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


# Stands in for Go: records its commands, has one source for all modules, and makes a program for each tool.
_GO = r"""#!/bin/sh
echo "$@" >> "{log}"
case "$1 $2" in
"list -m") case "$*" in *Version*) echo v1.34.4 ;; *) echo "{source}" ;; esac ;;
"build -v")
  {broken}
  while [ "$1" != -o ]; do shift; done
  cd "$2"
  case $PWD/$OLDPWD in
  */tools/kubernetes) set -- server {programs} ;;
  *) set -- training-operator.v1 ;;
  esac
  for name in "$@"; do echo "$name" >&2; echo built > "$name"; chmod +x "$name"; done ;;
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


@pytest.fixture
def source(bare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source of every module, for a stand-in for Go on PATH, which keeps its modules read-only as Go does."""
    source = bare / "source"
    for path in ("charts/kueue", "manifests/base/crds", "pkg/apis/crds", "pkg/utils/informer"):
        (source / path).mkdir(parents=True)
    (source / "pkg/utils/informer/informer.go").write_text(_QUESTION)
    (source / "pkg/utils/informer/informer.go").chmod(0o444)
    set_go(bare)
    monkeypatch.setenv("PATH", f"{bare}/bin:/usr/bin:/bin")
    return source


def set_go(bare: Path, broken: str = "") -> None:
    programs = " ".join(name for name in binaries.PROGRAMS if name not in ("etcd", "training-operator"))
    text = _GO.format(log=bare / "go.log", source=bare / "source", broken=broken, programs=programs)
    _program(bare / "bin", "go").write_text(text)


@pytest.mark.usefixtures("source")
def test_go_runs_once_for_each_module_and_what_is_built_is_kept(
    bare: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    found = binaries.find_all(Console())
    assert set(found) == set(binaries.PROGRAMS)
    assert binaries.missing() == []
    assert not list((bare / "cache").rglob("unfinished*"))
    log = (bare / "go.log").read_text()
    builds = [line for line in log.splitlines() if line.startswith("build")]
    assert "gitVersion=v1.34.4 -X k8s.io/component-base/version.gitMajor=1" in builds[0]
    assert binaries.find_all(Console()) == found
    assert (bare / "go.log").read_text() == log
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Building")]
    assert said[1:] == ["Building 2 of 2: training-operator; once, in up to about 1 min on this machine"]


@pytest.mark.usefixtures("source")
def test_a_build_that_fails_says_what_go_said_last_and_leaves_nothing_half_made(bare: Path) -> None:
    set_go(bare, broken="printf 'a/package\n# a/package\nx.go:1: undefined: y\n' >&2; exit 1")
    with pytest.raises(binaries.Missing, match=r"undefined: y\nInstead, put etcd"):
        binaries.find_all(Console(quiet=True))
    assert not list((bare / "cache").rglob("*/*/*"))


@pytest.mark.usefixtures("source")
def test_kwok_is_built_without_its_question_for_what_kubernetes_has_no_more(bare: Path) -> None:
    set_go(bare, broken=f'cp "$(dirname "$(expr "$*" : ".*-modfile=\\(\\S*\\)")")"/kwok-source/*/*/*/* {bare}; exit 1')
    with pytest.raises(binaries.Missing):
        binaries.find_all(Console(quiet=True))
    question = _QUESTION.splitlines()
    assert (bare / "informer.go").read_text().splitlines() == ["", question[1], *question[6:]]


def test_another_kwok_is_not_changed_in_silence(source: Path) -> None:
    (source / "pkg/utils/informer/informer.go").chmod(0o644)
    (source / "pkg/utils/informer/informer.go").write_text("package informer")
    with pytest.raises(binaries.Missing, match=r"the check to remove is not in informer\.go"):
        binaries.find_all(Console(quiet=True))


def test_a_program_of_the_modules_own_that_changes_is_a_new_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(binaries, "_TOOLS", tmp_path)
    program = tmp_path / "kubernetes" / "karpenter" / "main.go"
    program.parent.mkdir(parents=True)
    program.write_text("one")
    before = binaries.cache("kubernetes")
    program.write_text("two")
    assert binaries.cache("kubernetes") != before


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

    assert f"\tsigs.k8s.io/kueue v{KUEUE.version}" in (ROOT / "tools/kubernetes/go.mod").read_text()
