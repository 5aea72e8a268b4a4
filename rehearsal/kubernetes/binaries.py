"""Kubernetes' own programs: found where envtest users have them, or built from pinned Go modules and kept.

A program is looked for in ``KUBEBUILDER_ASSETS``, on PATH, then in the cache; what is nowhere is built from the
modules in ``tools/``. The cache is keyed by what those modules pin, so a new pin is a new folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

_TOOLS = Path(__file__).parents[2] / "tools"
# Three modules, since Go builds with one version of each library, and these three need different ones of Kubernetes'.
_KUBERNETES, _KWOK, _TRAINING_OPERATOR = "kubernetes", "kwok", "training-operator"
_HOW = (
    "put etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, helm and kwok on PATH, or name the "
    "folder that has them in KUBEBUILDER_ASSETS, or install Go 1.25 or newer and run `make kubernetes-tools`, which "
    "builds them in about six minutes"
)


@dataclass(frozen=True)
class Program:
    """A program: the folder in ``tools/`` whose module pins it, and the Go package to build.

    ``anywhere``: whether another build of it, as one on PATH, is as good as ours. Operators must be the pinned ones,
    since their jobs' schemas go with them.
    """

    name: str
    module: str
    package: str
    anywhere: bool = True


PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        Program("etcd", _KUBERNETES, "go.etcd.io/etcd/server/v3"),
        Program("kube-apiserver", _KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver"),
        Program("kube-controller-manager", _KUBERNETES, "k8s.io/kubernetes/cmd/kube-controller-manager"),
        Program("kube-scheduler", _KUBERNETES, "k8s.io/kubernetes/cmd/kube-scheduler"),
        Program("kubectl", _KUBERNETES, "k8s.io/kubernetes/cmd/kubectl"),
        Program("helm", _KUBERNETES, "helm.sh/helm/v3/cmd/helm"),
        Program("kwok", _KWOK, "sigs.k8s.io/kwok/cmd/kwok"),
        Program("mpi-operator", _KUBERNETES, "github.com/kubeflow/mpi-operator/cmd/mpi-operator", anywhere=False),
        Program("kueue", _KUBERNETES, "sigs.k8s.io/kueue/cmd/kueue", anywhere=False),
        Program(
            "training-operator",
            _TRAINING_OPERATOR,
            "github.com/kubeflow/training-operator/cmd/training-operator.v1",
            anywhere=False,
        ),
    )
}
# Folders that a run needs besides programs, by the name they get in the cache: which of ``tools/`` pins the Go module,
# the Go module, and the path in it.
FOLDERS: Mapping[str, tuple[str, str, str]] = {
    "kueue-chart": (_KUBERNETES, "sigs.k8s.io/kueue", "charts/kueue"),
    "mpi-operator-crds": (_KUBERNETES, "github.com/kubeflow/mpi-operator", "manifests/base"),
    "training-operator-crds": (_TRAINING_OPERATOR, "github.com/kubeflow/training-operator", "manifests/base/crds"),
}


class Missing(Exception):
    """A program is nowhere and cannot be built; the text says which, and how to get it."""


@dataclass(frozen=True)
class Built:
    """A program that was built: how long it took, seconds, and its size, MB."""

    name: str
    seconds: float
    megabytes: float


def cache(module: str) -> Path:
    """Where what a module of ``tools/`` pins is kept: a folder of its own for every set of pins."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((_TOOLS / module / name).read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "hyperpod-tools" / f"{module}-{digest.hexdigest()[:12]}"


def folder(name: str) -> Path | None:
    """A folder of ``FOLDERS``, None before it was built."""
    path = cache(FOLDERS[name][0]) / name
    return path if path.is_dir() else None


def find(name: str) -> Path | None:
    """Where a program is, None if nowhere."""
    program = PROGRAMS[name]
    candidates = [cache(program.module) / name]
    if program.anywhere:
        if on_path := shutil.which(name):
            candidates.insert(0, Path(on_path))
        if assets := os.environ.get("KUBEBUILDER_ASSETS"):
            candidates.insert(0, Path(assets) / name)
    return next((path for path in candidates if path.is_file() and os.access(path, os.X_OK)), None)


def missing() -> list[str]:
    """What a rehearsal needs and is nowhere yet."""
    return [name for name in PROGRAMS if find(name) is None] + [name for name in FOLDERS if folder(name) is None]


def find_all(console: Console) -> dict[str, Path]:
    """Every program, built first where it has to be. Raises Missing."""
    if lacking := missing():
        if shutil.which("go") is None:
            raise Missing(f"not on this machine: {', '.join(lacking)}; {_HOW}")
        build(lacking, console)
    return {name: path for name in PROGRAMS if (path := find(name))}


def build(names: list[str], console: Console) -> list[Built]:
    """Build what is named, one after the other; Go itself uses every core. Raises Missing where a build fails."""
    built = []
    with _locked():
        for number, name in enumerate(names, 1):
            if name in FOLDERS:
                _copy(name)
                continue
            program = PROGRAMS[name]
            target = cache(program.module) / name
            # Another run may have built it while this one waited.
            if target.is_file():
                continue
            began = time.monotonic()
            with console.status(f"Building {name} ({number} of {len(names)}); kept for later runs") as status:
                _go_build(program, target, lambda line, said=status: said.update(f"Building: {line}"))  # type: ignore[misc]
            one = Built(name, time.monotonic() - began, target.stat().st_size / 1e6)
            console.print(f"  built {name}: {one.seconds:.0f} s, {one.megabytes:.0f} MB", highlight=False)
            built.append(one)
    return built


def kubernetes_version() -> str:
    """The version of Kubernetes that ``tools/`` pins, as v1.34.4."""
    return pinned("k8s.io/kubernetes")


def pinned(module: str, tools: str = _KUBERNETES) -> str:
    """The version of a Go module that a module of ``tools/`` pins."""
    text = (_TOOLS / tools / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"^\s*{re.escape(module)} (v\S+)", text, re.MULTILINE)
    assert found, f"tools/{tools}/go.mod does not pin {module}"
    return found.group(1)


def _go_build(program: Program, target: Path, say: Callable[[str], None]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(f".{os.getpid()}")
    # Without the version, an API server says v0.0.0, and charts that ask for a least one are refused.
    major, minor, _ = kubernetes_version().removeprefix("v").split(".")
    version = "k8s.io/component-base/version."
    flags = (
        f"-s -w -X {version}gitVersion={kubernetes_version()} -X {version}gitMajor={major} -X {version}gitMinor={minor}"
    )
    command = ["go", "build", "-trimpath", f"-ldflags={flags}", "-o", str(unfinished), program.package]
    last: list[str] = []
    # No C compiler is needed, and the result runs on any Linux.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    with subprocess.Popen(
        command,
        cwd=_TOOLS / program.module,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        try:
            for line in process.stderr:
                last = [*last[-9:], line.rstrip()]
                say(line.strip()[:100])
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        unfinished.unlink(missing_ok=True)
        raise Missing(f"{program.name} could not be built: " + "\n".join(last) + f"\nInstead, {_HOW}")
    unfinished.replace(target)


def _copy(name: str) -> None:
    """Bring a folder of a Go module into the cache."""
    tools, module, path = FOLDERS[name]
    asked = subprocess.run(
        ["go", "mod", "download", "-json", f"{module}@{pinned(module, tools)}"],
        cwd=_TOOLS / tools,
        capture_output=True,
        text=True,
    )
    if asked.returncode:
        raise Missing(f"{module} could not be downloaded: {asked.stderr.strip()}")
    target = cache(tools) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(f".{os.getpid()}")
    shutil.copytree(Path(json.loads(asked.stdout)["Dir"]) / path, unfinished)
    # Go keeps its modules read-only.
    for one in [unfinished, *unfinished.rglob("*")]:
        one.chmod(0o755 if one.is_dir() else 0o644)
    shutil.rmtree(target, ignore_errors=True)
    unfinished.replace(target)


@contextmanager
def _locked() -> Iterator[None]:
    """One build at a time on this machine."""
    place = cache(_KUBERNETES).parent
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """``make kubernetes-tools``: build what is missing, and say where everything is."""
    console = Console()
    try:
        programs = find_all(console)
    except Missing as lacking:
        Console(stderr=True).print(str(lacking), style="red", markup=False, highlight=False, soft_wrap=True)
        return 2
    for name, path in programs.items():
        console.print(f"  {name:<24} {path}", highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
