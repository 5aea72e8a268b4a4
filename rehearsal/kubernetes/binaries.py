"""Kubernetes' own programs: found where envtest users have them, or built from pinned Go modules and cached.

Programs are searched for in ``KUBEBUILDER_ASSETS``, on PATH and in the cache. Missing ones are built from the modules
in ``tools/``. The cache is keyed by what those modules pin, so a new pin gets a new folder.
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
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ..patience import told

_TOOLS = Path(__file__).parents[2] / "tools"
# Two modules, since Go builds with one version of each library and the training operator needs an older Kubernetes.
_KUBERNETES, _TRAINING_OPERATOR = "kubernetes", "training-operator"
_HOW = (
    "put etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, helm and kwok on PATH, or name the "
    "folder that has them in KUBEBUILDER_ASSETS, or install Go 1.25 or newer and run `make kubernetes-tools`, which "
    "builds them in about five minutes"
)


@dataclass(frozen=True)
class Program:
    """A program: the folder in ``tools/`` whose module pins it, and the Go package to build.

    ``anywhere``: whether another build, such as one on PATH, is as good. Operators must be the pinned ones, since their
    jobs' schemas belong to them.
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
        Program("kwok", _KUBERNETES, "sigs.k8s.io/kwok/cmd/kwok"),
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
# Other folders that a run needs, by their name in the cache: the folder of ``tools/`` that pins the Go module, the Go
# module, and the path in it.
FOLDERS: Mapping[str, tuple[str, str, str]] = {
    "kueue-chart": (_KUBERNETES, "sigs.k8s.io/kueue", "charts/kueue"),
    "mpi-operator-crds": (_KUBERNETES, "github.com/kubeflow/mpi-operator", "manifests/base"),
    "training-operator-crds": (_TRAINING_OPERATOR, "github.com/kubeflow/training-operator", "manifests/base/crds"),
}


# What each module takes from an empty cache of Go's, as measured.
_CPU_SECONDS = {_KUBERNETES: 720, _TRAINING_OPERATOR: 150}

# kwok 0.7 reads an annotation that Kubernetes 1.34 has removed. kwok's own "Bump k8s to 1.34" drops the check, and so
# does the build here. This way kwok uses the libraries that the others have already compiled.
_KWOK = "sigs.k8s.io/kwok"
_KWOK_FILE = Path("pkg", "utils", "informer", "informer.go")
_KWOK_QUESTION = re.compile(r"\n\t*base64EncodedInitialEventsListBlueprint := .*\n.*\n.*\n\t*}(?=\n)")


class Missing(Exception):
    """A program is missing and cannot be built. The text says which, and how to get it."""


@dataclass(frozen=True)
class Built:
    """The result of building one module of ``tools/``: its programs, the seconds it took, and their size in MB."""

    names: tuple[str, ...]
    seconds: float
    megabytes: float


def cache(module: str) -> Path:
    """The cache folder for what a module of ``tools/`` pins. Every set of pins has its own."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((_TOOLS / module / name).read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "hyperpod-tools" / f"{module}-{digest.hexdigest()[:12]}"


def folder(name: str) -> Path | None:
    """A folder of ``FOLDERS``, or None if it is not built yet."""
    path = cache(FOLDERS[name][0]) / name
    return path if path.is_dir() else None


def find(name: str) -> Path | None:
    """A program's path, or None if it is missing."""
    program = PROGRAMS[name]
    candidates = [cache(program.module) / name]
    if program.anywhere:
        if on_path := shutil.which(name):
            candidates.insert(0, Path(on_path))
        if assets := os.environ.get("KUBEBUILDER_ASSETS"):
            candidates.insert(0, Path(assets) / name)
    return next((path for path in candidates if path.is_file() and os.access(path, os.X_OK)), None)


def missing() -> list[str]:
    """What a rehearsal needs that is still missing."""
    return [name for name in PROGRAMS if find(name) is None] + [name for name in FOLDERS if folder(name) is None]


def find_all(console: Console) -> dict[str, Path]:
    """Every program; missing ones are built first. Raises Missing."""
    if lacking := missing():
        if shutil.which("go") is None:
            raise Missing(f"not on this machine: {', '.join(lacking)}; {_HOW}")
        build(lacking, console)
    return {name: path for name in PROGRAMS if (path := find(name))}


def build(names: list[str], console: Console) -> list[Built]:
    """Build the named programs, a module at a time, since Go uses every core. Raises Missing if a build fails."""
    with _locked():
        for name in names:
            if name in FOLDERS:
                with told(console, f"Downloading {name}"):
                    _copy(name)
        # Another run may have built some of them while this one waited.
        wanted = [PROGRAMS[name] for name in names if name in PROGRAMS and not _target(PROGRAMS[name]).is_file()]
        modules = dict.fromkeys(program.module for program in wanted)
        return [
            _build_all([one for one in wanted if one.module == module], console, f"{number} of {len(modules)}")
            for number, module in enumerate(modules, start=1)
        ]


def _target(program: Program) -> Path:
    return cache(program.module) / program.name


def _build_all(programs: list[Program], console: Console, which: str) -> Built:
    """Build one module's programs in one run of Go: shared code is compiled once, and no core waits for a linker."""
    names = tuple(program.name for program in programs)
    began = time.monotonic()
    about = max(1, round(_CPU_SECONDS[programs[0].module] / (os.cpu_count() or 1) / 60))
    what = f"Building {which}: {', '.join(names)}; once, in up to about {about} min on this machine"
    with told(console, what) as at:
        _go_build(programs, at)
    size = sum(_target(program).stat().st_size for program in programs)
    built = Built(names, time.monotonic() - began, size / 1e6)
    console.print(f"  built {', '.join(names)}: {built.seconds:.0f} s, {built.megabytes:.0f} MB", highlight=False)
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


def _go_build(programs: list[Program], say: Callable[[str], None]) -> None:
    module = programs[0].module
    folder = cache(module)
    folder.mkdir(parents=True, exist_ok=True)
    # Without the version, an API server reports v0.0.0, and charts that require a minimum version are refused.
    major, minor, _ = kubernetes_version().removeprefix("v").split(".")
    version = "k8s.io/component-base/version."
    flags = (
        f"-s -w -X {version}gitVersion={kubernetes_version()} -X {version}gitMajor={major} -X {version}gitMinor={minor}"
    )
    # No C compiler is needed, and the result runs on any Linux. Letting the compiler use more memory before garbage
    # collection, and leaving out debug information, saves a seventh of the CPU time.
    environment = {"GOGC": "800", **os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    with tempfile.TemporaryDirectory(prefix="unfinished-", dir=folder) as unfinished:
        command = ["go", "build", "-v", "-trimpath", "-gcflags=all=-dwarf=false", f"-ldflags={flags}"]
        if any(program.name == "kwok" for program in programs):
            command.append(f"-modfile={_with_own_kwok(Path(unfinished, 'source'))}")
        command += ["-o", f"{unfinished}/", *(program.package for program in programs)]
        _run_go(command, _TOOLS / module, environment, say)
        for program in programs:
            Path(unfinished, _go_name(program.package)).replace(_target(program))


def _run_go(command: list[str], folder: Path, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Run Go and show its progress. Raises Missing with the end of its output."""
    last: list[str] = []
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        try:
            for line in map(str.rstrip, process.stderr):
                say(line.strip()[:100])
                # A single word is a package that is being compiled.
                if " " in line:
                    last = [*last[-9:], line]
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise Missing("go build failed: " + "\n".join(last) + f"\nInstead, {_HOW}")


def _go_name(package: str) -> str:
    """The name that ``go build`` gives a package's program: its last folder, or the one before a major version."""
    parts = package.split("/")
    return parts[-2] if re.fullmatch(r"v[2-9]", parts[-1]) else parts[-1]


def _with_own_kwok(place: Path) -> Path:
    """A copy of the module's go.mod that takes kwok's source from ``place``, where it is patched."""
    shutil.copytree(_downloaded(_KUBERNETES, _KWOK), place)
    _writable(place)
    file = place / _KWOK_FILE
    fitting, count = _KWOK_QUESTION.subn("", file.read_text(encoding="utf-8"))
    if count != 1:
        raise Missing(f"{_KWOK}/{_KWOK_FILE} is not what it was: _KWOK_QUESTION is not in it")
    file.write_text(fitting, encoding="utf-8")
    pins = place.with_name("go.mod")
    text = (_TOOLS / _KUBERNETES / "go.mod").read_text(encoding="utf-8")
    pins.write_text(f"{text}\nreplace {_KWOK} => {place}\n", encoding="utf-8")
    shutil.copy(_TOOLS / _KUBERNETES / "go.sum", pins.with_name("go.sum"))
    return pins


def _copy(name: str) -> None:
    """Copy a folder of a Go module into the cache."""
    tools, module, path = FOLDERS[name]
    target = cache(tools) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(f".{os.getpid()}")
    shutil.copytree(_downloaded(tools, module) / path, unfinished)
    _writable(unfinished)
    shutil.rmtree(target, ignore_errors=True)
    unfinished.replace(target)


def _downloaded(tools: str, module: str) -> Path:
    """The folder with the source of a module that ``tools/`` pins, in Go's module cache. Raises Missing."""
    command = ["go", "mod", "download", "-json", f"{module}@{pinned(module, tools)}"]
    asked = subprocess.run(command, cwd=_TOOLS / tools, capture_output=True, text=True)
    if asked.returncode:
        raise Missing(f"{module} could not be downloaded: {asked.stderr.strip()}")
    return Path(json.loads(asked.stdout)["Dir"])


def _writable(folder: Path) -> None:
    """Make files writable, since Go's module cache is read-only."""
    for one in [folder, *folder.rglob("*")]:
        one.chmod(0o755 if one.is_dir() else 0o644)


@contextmanager
def _locked() -> Iterator[None]:
    """Allow one build at a time on this machine."""
    place = cache(_KUBERNETES).parent
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """``make kubernetes-tools``: build what is missing, and print where everything is. ``--lacking`` only names it."""
    console = Console()
    if sys.argv[1:] == ["--lacking"]:
        print(*missing(), sep=", ")
        return 0
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
