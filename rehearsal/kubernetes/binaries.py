"""Kubernetes' own programs: found where envtest users have them, or built from pinned Go modules and cached.

Programs are searched for in ``KUBEBUILDER_ASSETS``, on PATH and in the cache. ``tools/kubernetes_programs.sh`` builds
missing ones. The cache is keyed by the modules' files, so a new pin gets a new folder.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from ..patience import told

_TOOLS = Path(__file__).parents[2] / "tools"
# Two modules, since Go builds with one version of each library and the training operator needs an older Kubernetes.
# What building each takes with an empty cache of Go's, as measured.
_CPU_SECONDS = {"kubernetes": 750, "training-operator": 150}
# The module in ``tools/`` that each program, chart and set of manifests comes from.
_OPERATORS = ("mpi-operator", "kueue", "karpenter", "training-operator")
PROGRAMS = {
    **dict.fromkeys(("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"), "kubernetes"),
    **dict.fromkeys(("kubectl", "helm", "kwok", *_OPERATORS), "kubernetes"),
    "training-operator": "training-operator",
}
FOLDERS = {
    "kueue-chart": "kubernetes",
    "karpenter-crds": "kubernetes",
    "mpi-operator-crds": "kubernetes",
    "training-operator-crds": "training-operator",
}
_HOW = (
    "put etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, helm and kwok on PATH, or name the "
    "folder that has them in KUBEBUILDER_ASSETS, or install Go 1.25 or newer and run `make kubernetes-tools`, which "
    "builds them in about five minutes"
)


class Missing(Exception):
    """A program is missing and cannot be built. The text says which, and how to get it."""


def cache(module: str) -> Path:
    """The cache folder for what a module of ``tools/`` pins. Every set of pins has its own."""
    digest = hashlib.sha256()
    for path in sorted(path for path in (_TOOLS / module).rglob("*") if path.is_file()):
        digest.update(path.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "hyperpod-tools" / f"{module}-{digest.hexdigest()[:12]}"


def folder(name: str) -> Path | None:
    """A folder of ``FOLDERS``, or None if it is not built yet."""
    path = cache(FOLDERS[name]) / name
    return path if path.is_dir() else None


def find(name: str) -> Path | None:
    """A program's path, or None if it is missing."""
    candidates = [cache(PROGRAMS[name]) / name]
    # Operators must be the pinned ones, since their jobs' schemas belong to them.
    if name not in _OPERATORS:
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
        modules = dict.fromkeys((PROGRAMS | FOLDERS)[name] for name in lacking)
        for number, module in enumerate(modules, start=1):
            _build(module, console, f"{number} of {len(modules)}")
    return {name: path for name in PROGRAMS if (path := find(name))}


def _build(module: str, console: Console, which: str) -> None:
    """Build one module's programs; one at a time, since Go uses every core. Raises Missing."""
    began, target = time.monotonic(), cache(module)
    names = ", ".join(name for name in PROGRAMS if PROGRAMS[name] == module)
    about = max(1, round(_CPU_SECONDS[module] / (os.cpu_count() or 1) / 60))
    with told(console, f"Building {which}: {names}; once, in up to about {about} min on this machine") as at:
        _run([str(_TOOLS / "kubernetes_programs.sh"), module, str(target)], at)
    console.print(f"  built {names} in {time.monotonic() - began:.0f} s", highlight=False)


def _run(command: list[str], say: Callable[[str], None]) -> None:
    """Run the script and show its progress. Raises Missing with the end of its output."""
    last: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0
    ) as process:
        assert process.stderr
        try:
            for line in map(str.rstrip, process.stderr):
                say(line.strip()[:100])
                # A single word is a package that is being compiled.
                if " " in line:
                    last = [*last[-9:], line]
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise
    if process.returncode:
        raise Missing("go build failed: " + "\n".join(last) + f"\nInstead, {_HOW}")


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
