"""Download Enroot and Pyxis into a folder for ``hyperpod:slurm.containerPackages``, with their digests beside them."""

import hashlib
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from hyperpod_node.slurm.containers import SUMS, digests
from rich.progress import Progress

from ..failures import Failure, bad_input
from .download import fetch


@dataclass(frozen=True, kw_only=True)
class Package:
    """A file to download. ``sha256``: its digest, or of the archive in it without compression; empty where its authors
    publish none: then the first download's counts (docs/security.md, "Supply chain")."""

    name: str
    version: str
    url: str
    sha256: str = ""

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"pyxis-{self.version}.tar.gz" if self.name == "pyxis" else self.url.rsplit("/", 1)[1]


_ENROOT = "https://github.com/NVIDIA/enroot/releases/download/v4.1.2"
# GitHub makes a source archive anew now and then, compressed in another way; the archive in
# it stays (`git archive --prefix=pyxis-0.24.0/ v0.24.0`). These packages are for x86_64 processors.
PACKAGES = (
    Package(name="enroot", version="4.1.2", url=f"{_ENROOT}/enroot_4.1.2-1_amd64.deb"),
    Package(name="enroot+caps", version="4.1.2", url=f"{_ENROOT}/enroot+caps_4.1.2-1_amd64.deb"),
    Package(
        name="pyxis",
        version="0.24.0",
        url="https://github.com/NVIDIA/pyxis/archive/refs/tags/v0.24.0.tar.gz",
        sha256="b406327c172809248d6015a4c514a1ab7974a6a132b5e70b191d6ac5ab2523d0",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Brought:
    """A package in the folder. ``known``: whether its digest was known before, from the project or from the folder."""

    package: str
    version: str
    path: str
    sha256: str
    known: bool


def bring(folder: Path, offline: Path | None = None, progress: Progress | None = None) -> list[Brought]:
    """Put the packages into a folder, beside what else is there. What it has already is only checked.

    ``offline`` is a folder with the files, to use instead of the network. Raises Failure where a package is not what it
    was, or cannot be had; the folder then has what it had.
    """
    if folder.exists() and not folder.is_dir():
        raise bad_input(f"{folder} is not a folder", "hyperpod download containers FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    sums = folder / SUMS
    before = digests(sums.read_text()) if sums.is_file() else {}
    found = [_one(package, folder, before.get(package.file, ""), offline, progress) for package in PACKAGES]
    now = before | {Path(one.path).name: one.sha256 for one in found}
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(now.items()))
    if not sums.is_file() or sums.read_text() != text:
        partial = sums.with_name(f".{SUMS}.new")
        partial.write_text(text)
        partial.replace(sums)
    return found


def _one(package: Package, folder: Path, before: str, offline: Path | None, progress: Progress | None) -> Brought:
    target = folder / package.file
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as scratch:
        there = target.is_file()
        path = target if there else fetch(package.url, package.file, Path(scratch), offline, progress)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if before and digest != before:
            raise _other(package, f"{digest}, and not {before} as {folder / SUMS} says")
        if package.sha256 and (inner := _uncompressed(path)) != package.sha256:
            raise _other(package, f"{inner or digest}, and not {package.sha256} (uncompressed) as this project says")
        if not there:
            path.rename(target)
    known = bool(before or package.sha256)
    return Brought(package=package.name, version=package.version, path=str(target), sha256=digest, known=known)


def _other(package: Package, what: str) -> Failure:
    return Failure(
        f"{package.file} has the digest {what}",
        "it is incomplete or was changed; delete it and run this again, and if that does not help, do not use it",
    )


def _uncompressed(path: Path) -> str:
    """The digest of a compressed file's content; empty where it is none."""
    try:
        return hashlib.sha256(zlib.decompress(path.read_bytes(), wbits=zlib.MAX_WBITS | 16)).hexdigest()
    except zlib.error:
        return ""
