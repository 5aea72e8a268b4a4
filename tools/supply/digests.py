"""Ask registries for the digests of the images that are named by tag alone: ``make digests``.

A registry answers with the digest of what a tag stands for now (OCI Distribution Specification, "Pulling manifests").
Anybody may read these; a registry that wants a token says where it gives one (Docker Registry HTTP API V2, "Token
Authentication Specification"). Exit codes are those of the verbs: 1 for an image that its registry does not have, 3
where a registry cannot be asked.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.catalogue.rows import read
from stack.failures import Exit, Failure, cannot_know

from .audit import ROOT, tracked

UNPINNED = Path(__file__).with_name("unpinned.csv")
_SECONDS = 30
# Of an image for several architectures, else of one for a single architecture.
_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# What is written from the others, or says what is not pinned.
_DERIVED = ("tests/golden/", "tools/supply/", "docs/")


@dataclass(frozen=True)
class Unpinned:
    """An image or OCI chart without a digest, as a pattern, and why that is taken."""

    reference: str
    reason: str


def by_tag(table: Path = UNPINNED) -> Iterator[str]:
    """The images of the table that have one name everywhere and a tag."""
    for row in read(table, Unpinned):
        if "*" not in row.reference and re.search(r":[^/]+$", row.reference):
            yield row.reference


def digest(reference: str, scheme: str = "https") -> str:
    """The digest of HOST/REPOSITORY:TAG. Raises Failure if the registry has no such image, or cannot be asked."""
    host, _, rest = reference.partition("/")
    repository, _, tag = rest.rpartition(":")
    address = f"{scheme}://{host}/v2/{repository}/manifests/{tag}"
    try:
        try:
            answer = _head(address)
        except urllib.error.HTTPError as error:
            if error.code != http.client.UNAUTHORIZED:
                raise
            answer = _head(address, _token(error.headers["WWW-Authenticate"] or ""))
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError) and error.code == http.client.NOT_FOUND:
            raise Failure(f"{host} has no {repository}:{tag}") from None
        raise cannot_know(f"{host} could not be asked about {reference}: {error}") from None
    if not _DIGEST.fullmatch(answer):
        raise cannot_know(f'{host} names no digest of {reference}, but "{answer}"')
    return answer


def _head(address: str, token: str = "") -> str:
    headers = {"Accept": _MANIFESTS} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(address, headers=headers, method="HEAD")
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        return str(answer.headers["Docker-Content-Digest"] or "")


def _token(challenge: str) -> str:
    asked = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    if not challenge.lower().startswith("bearer ") or "realm" not in asked:
        raise ValueError(f"it asks for credentials: {challenge}")
    wanted = urllib.parse.urlencode({key: asked[key] for key in ("service", "scope") if key in asked})
    with urllib.request.urlopen(f"{asked['realm']}?{wanted}", timeout=_SECONDS) as answer:
        given = json.load(answer)
    return str(given.get("token") or given["access_token"])


def pin(found: dict[str, str], files: Sequence[str], root: Path = ROOT, table: Path = UNPINNED) -> list[str]:
    """Name these images by tag and digest in the files, and take them out of the table. Returns the files changed."""
    changed = []
    for name in files:
        if name.startswith(_DERIVED) or name.endswith((".md", ".csv")):
            continue
        text = after = (root / name).read_bytes()
        for reference, one in found.items():
            after = re.sub(rb"%s(?![\w.@-])" % re.escape(reference.encode()), f"{reference}@{one}".encode(), after)
        if after != text:
            (root / name).write_bytes(after)
            changed.append(name)
    rest = [row for row in read(table, Unpinned) if row.reference not in found]
    with table.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerows([("reference", "reason"), *((row.reference, row.reason) for row in rest)])
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each image with its digest; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the digests into the files that name the images")
    chosen = parser.parse_args(arguments)
    found: dict[str, str] = {}
    codes = {Exit.GOOD}
    for reference in by_tag():
        try:
            found[reference] = digest(reference)
            print(f"{reference}@{found[reference]}", flush=True)
        except Failure as failure:
            codes.add(failure.code)
            print(f"WARNING: {failure.message}", file=sys.stderr)
    if chosen.write:
        print(f"changed: {', '.join(pin(found, tracked())) or 'nothing'}; now run make golden docs-reference and test")
    return min(codes - {Exit.GOOD}, default=Exit.GOOD)


if __name__ == "__main__":
    sys.exit(main())
