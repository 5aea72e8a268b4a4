"""The Slurm that the hosts run: Debian's packages of a release, unpacked beside the machine's own and cached.

HyperPod's images have Slurm 25.11 in /opt/slurm, on an Ubuntu that is as old as the Debian here. No Debian has that
release: the binaries are of the releases before and after it, from newer Debians, patched to use the loader and the
libraries that come with them; the machine's own are not touched. Suites move with their point releases, so only a
minimum version is required.
"""

import ast
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

ReleaseName: TypeAlias = Literal["24.11", "26.05"]


@dataclass(frozen=True)
class Release:
    """A release of Slurm, and the Debian suite that has it in this version or a later one (packages.debian.org)."""

    name: ReleaseName
    suite: str


RELEASES: Mapping[str, Release] = {
    release.name: release
    for release in (
        # The releases around that of HyperPod's images (docs/rehearsal.md): Debian's development suite has the newest.
        Release("24.11", "trixie"),
        Release("26.05", "sid"),
    )
}
DEFAULT: ReleaseName = "24.11"
_RPATH = ("--force-rpath", "--set-rpath", "/opt/slurm/lib:/opt/slurm/lib/slurm")
_DAEMONS = ("slurmctld", "slurmd", "slurmdbd", "slurmstepd")
_PAM = "libpam-slurm-adopt"
_WANTED = ("slurmctld", "slurmd", "slurmdbd", "slurm-client", "libslurm-dev")
# Which dependencies to take: libraries and Slurm itself, but nothing that only terminals, X or GPU drivers need.
_KEPT = re.compile(r"^(lib|slurm|zlib1g$)")
_DROPPED = re.compile(r"^lib(x|newt|slang|debconf|semanage|sepol|pam|audit|text|debian|ocl|ze|proc)|perl")
_DEPENDS = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
# A separate apt state beside the machine's own. Nothing is installed.
_APT = """Dir::State "{state}";
Dir::State::Lists "{state}/lists";
Dir::State::status "{state}/status";
Dir::Cache "{state}/cache";
Dir::Etc::sourcelist "{state}/sources.list";
Dir::Etc::sourceparts "{state}/none";
Dir::Etc::preferences "{state}/none/preferences";
Dir::Etc::preferencesparts "{state}/none";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
APT::Sandbox::User "root";
"""


class Unavailable(Exception):
    """A release cannot be fetched here. The text says why."""


def folder(release: str) -> Path:
    """A release's folder, a root with ``opt/slurm`` in it. It changes with the code of this file."""
    digest = hashlib.sha256(_recipe().encode()).hexdigest()[:12]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "hyperpod-tools" / f"slurm-{release}-{digest}"


@cache
def _recipe() -> str:
    """This file without comments and docstrings, which do not affect what is fetched."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def missing(release: str) -> bool:
    """Whether a release is yet to be fetched."""
    return not folder(release).is_dir()


def fetch(release: str) -> Path:
    """Fetch and unpack a release if it is missing. Needs apt-get, dpkg-deb and patchelf. Raises Unavailable."""
    target = folder(release)
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.") as made:
        packages, root = Path(made, "packages"), Path(made, "root")
        packages.mkdir()
        _download(RELEASES[release], packages)
        unpacked = Path(made, "unpacked")
        for package in packages.glob("*.deb"):
            _run(["dpkg-deb", "-x", str(package), str(unpacked)])
        _arrange(unpacked, root)
        _bind(root / "opt/slurm")
        root.chmod(0o755)
        try:
            root.rename(target)
        except OSError:
            # Another run was faster.
            if not target.is_dir():
                raise
    return target


def _download(release: Release, packages: Path) -> None:
    state = packages.parent / "apt"
    for name in ("lists/partial", "cache/archives/partial", "none"):
        (state / name).mkdir(parents=True)
    (state / "status").touch()
    (state / "sources.list").write_text(f"deb {_mirror()} {release.suite} main\n")
    config = state / "apt.conf"
    config.write_text(_APT.format(state=state))
    apt = {**os.environ, "APT_CONFIG": str(config)}
    _run(["apt-get", "update", "-q"], apt)
    offered = _run(["apt-cache", "policy", _WANTED[0]], apt)
    version = re.search(r"Candidate: (\S+)", offered)
    if version is None or subprocess.run(["dpkg", "--compare-versions", version[1], "ge", release.name]).returncode:
        raise Unavailable(f"Debian's {release.suite} has Slurm {version[1] if version else '?'}, not {release.name}")
    limits = [f"--no-{kind}" for kind in _DEPENDS]
    tree = _run(["apt-cache", *limits, "depends", "--recurse", *_WANTED, _PAM], apt)
    names = {line for line in tree.splitlines() if not line.startswith((" ", "<"))}
    kept = sorted(name for name in names if name == _PAM or (_KEPT.match(name) and not _DROPPED.search(name)))
    _run(["apt-get", "download", "-q", *kept], apt, packages)


def _mirror() -> str:
    """The mirror that this machine's packages come from."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
    found = _run(asked).split()
    if not found:
        raise Unavailable("apt-get knows no archive of Debian's here: run apt-get update on a Debian machine")
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    return f"[signed-by={keys}] {found[0]}" if Path(keys).exists() else found[0]


def _arrange(unpacked: Path, root: Path) -> None:
    """Create HyperPod's folders, and links from where Debian's build looks for its plug-ins and its step daemon."""
    slurm = root / "opt/slurm"
    libraries = next((unpacked / "usr/lib").glob("*-linux-gnu"))
    (slurm / "lib").mkdir(parents=True)
    for path in libraries.glob("*.so*"):
        path.rename(slurm / "lib" / path.name)
    (libraries / "security").rename(slurm / "lib/security")
    # For plug-ins that nodes build.
    (unpacked / "usr/include").rename(slurm / "include")
    plugins = next(libraries.glob("slurm*"))
    plugins.rename(slurm / "lib/slurm")
    modules = sorted((slurm / "lib/security").iterdir())
    for name, sources in (
        ("bin", (unpacked / "usr/bin").glob("s*")),
        # Sorted: a link comes before the file that takes its name.
        ("sbin", sorted({path for one in _DAEMONS for path in (unpacked / "usr/sbin").glob(f"{one}*")})),
    ):
        (slurm / name).mkdir()
        for path in sources:
            target = slurm / name / path.name.removesuffix("-wlm")
            if not path.is_symlink() or path.name == target.name:
                path.rename(target)
    for link, aim in (
        (f"usr/lib/{libraries.name}/{plugins.name}", "/opt/slurm/lib/slurm"),
        *((f"usr/lib/{libraries.name}/security/{one.name}", f"/opt/slurm/lib/security/{one.name}") for one in modules),
        *((f"usr/sbin/{daemon}{end}", f"/opt/slurm/sbin/{daemon}") for daemon in _DAEMONS for end in ("", "-wlm")),
    ):
        (root / link).parent.mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(aim)


def loading(slurm: Path) -> list[str]:
    """The command that patches a program to use the loader and the libraries of a release in /opt/slurm."""
    loader = next((slurm / "lib").glob("ld-linux*")).name
    return ["patchelf", "--set-interpreter", f"/opt/slurm/lib/{loader}", *_RPATH]


def _bind(slurm: Path) -> None:
    """Patch every binary to use the loader and the libraries that came with it."""
    program = loading(slurm)
    jobs: list[list[str]] = []
    for path in slurm.rglob("*"):
        if path.is_symlink() or not path.is_file() or path.read_bytes()[:4] != b"\x7fELF":
            continue
        path.chmod(0o755)
        if path.parent.name in ("bin", "sbin"):
            jobs.append([*program, str(path)])
        elif not path.name.startswith(("ld-linux", "libc.so")):
            jobs.append(["patchelf", *_RPATH, str(path)])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_run, jobs))


def _run(argv: Sequence[str], environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(argv, env=environment, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise Unavailable(f"{' '.join(argv[:2])}: {''.join(last) or done.returncode}")
    return done.stdout


if __name__ == "__main__":
    # For the Makefile. Whatever needs a missing release reports that itself.
    for wanted in RELEASES:
        try:
            print(f"Slurm {wanted}: {fetch(wanted)}")
        except Unavailable as reason:
            print(f"Slurm {wanted}: {reason}", file=sys.stderr)
            if wanted == DEFAULT:
                sys.exit(1)
