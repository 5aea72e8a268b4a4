"""Known vulnerabilities of the locked packages, and secrets in the project's files: ``make audit``.

pip-audit asks OSV, whose address it can be told; PyPI's own database is not asked, since mirrors of PyPI answer without
it, which looks like "none". Exit codes are those of the verbs: 1 for a finding, 3 where the database cannot be asked.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.settings import default_settings

from components.catalogue.rows import read
from operations.failures import Exit, Failure, cannot_know


def entries(path: Path) -> list[str]:
    """The requirements of a locked file and of those that it names with ``-r``, each with its hashes."""
    text = path.read_text()
    named = re.findall(r"^-r (.+)$", text, re.MULTILINE)
    own = re.findall(r"^[\w.-]+==.*\n", text, re.MULTILINE)
    return [*(entry for name in named for entry in entries(path.parent / name)), *own]


ROOT = Path(__file__).parents[2]
OSV = "https://api.osv.dev/v1/query"
# The development requirements include the program's: tests/test_project.py.
LOCKED = ROOT / "requirements-dev.txt"
NO_SECRETS = Path(__file__).with_name("no_secrets.csv")
# A vulnerability that is taken for now, by its id, and why. None is.
TAKEN: Mapping[str, str] = {}
# About a request a package, of which there are some 200.
_SECONDS = 900
# Lines of hashes, in which nothing else could hide: pip refuses a package whose hash is another one.
_ONLY_HASHES = ("requirements.txt", "requirements-docs.txt", "requirements-dev.txt", "go.sum")


@dataclass(frozen=True)
class Secret:
    """A string that looks like a secret and is none. ``digest`` is its SHA-1, as detect-secrets writes it."""

    file: str
    kind: str
    digest: str
    reason: str


def vulnerabilities(locked: Path = LOCKED, database: str = OSV) -> Iterator[str]:
    """Every known vulnerability, in words. Raises Failure if the database could not be asked about every package."""
    wanted = entries(locked)
    command = [sys.executable, "-m", "pip_audit", "--requirement", "/dev/stdin", "--disable-pip", "--require-hashes"]
    command += ["--vulnerability-service", "osv", "--osv-url", database, "--format", "json", "--desc", "off"]
    command += ["--progress-spinner", "off", *(f"--ignore-vuln={known}" for known in TAKEN)]
    try:
        # It does not follow the -r of a file, and would audit a third of the packages.
        ran = subprocess.run(
            command, input="".join(wanted), capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        answer = json.loads(ran.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        raise _not_audited(database, f"no end after {_SECONDS} s") from None
    except (ValueError, KeyError):
        raise _not_audited(database, (ran.stderr.strip().splitlines() or ["no answer"])[-1]) from None
    if skipped := [package["name"] for package in answer if "skip_reason" in package] or not answer:
        raise _not_audited(database, f"no answer about {skipped if answer else 'any package'}")
    for package in answer:
        for found in package["vulns"]:
            fixed = ", ".join(found["fix_versions"]) or "no version yet"
            names = ", ".join([found["id"], *found["aliases"]])
            yield f"{package['name']} {package['version']}: {names}; fixed in {fixed}"


def _not_audited(database: str, why: str) -> Failure:
    return cannot_know(f"could not reach the vulnerability database: not audited ({database}: {why})")


def secrets(files: Sequence[str], root: Path = ROOT, none: Path = NO_SECRETS) -> Iterator[str]:
    """What looks like a secret and is not in the table of those that are none, and rows of it that nothing matches."""
    taken = {(one.file, one.kind, one.digest) for one in read(none, Secret)}
    found = SecretsCollection(root=str(root))
    with default_settings():
        found.scan_files(*(name for name in files if not name.endswith(_ONLY_HASHES)))
    lines = {(name, secret.type, secret.secret_hash): secret.line_number for name, secret in found}
    for name, kind, digest in sorted(lines.keys() - taken):
        yield f"{name}, line {lines[name, kind, digest]}: {kind}; if it is none: {name},{kind},{digest},REASON"
    for name, kind, digest in sorted(taken - lines.keys()):
        yield f"{none.name}: {name} has no {kind} {digest} any more"


def tracked() -> list[str]:
    """The files of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every finding; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", default=OSV, metavar="URL", help="an OSV service: another one, or a mirror")
    parser.add_argument("--locked", type=Path, default=LOCKED, metavar="FILE", help="the requirements to look up")
    chosen = parser.parse_args(arguments)
    findings = [f"secret: {found}" for found in secrets(tracked())]
    unknown = ""
    try:
        findings += [f"vulnerable: {found}" for found in vulnerabilities(chosen.locked, chosen.database)]
    except Failure as failure:
        unknown = failure.message
    for line in findings:
        print(line)
    if unknown:
        print(f"WARNING: {unknown}", file=sys.stderr)
    if findings:
        return Exit.FAILED
    print("no secrets" if unknown else "no known vulnerability, no secrets")
    return Exit.CANNOT_KNOW if unknown else Exit.GOOD


if __name__ == "__main__":
    sys.exit(main())
