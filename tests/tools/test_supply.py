"""What this project is made of is pinned, licensed and looked up: a finding is red, an unreachable database is said."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from components.catalogue.rows import table
from operations.cluster import device_pods
from operations.failures import Exit
from tests.golden.jobs import STACKS, rendered
from tests.golden.stacks import GOLDEN, told
from tests.support import ROOT
from tools.supply import audit

# As OSV answers about it (https://osv.dev/vulnerability/GHSA-462w-v97r-4m45).
RECORDED = {
    "vulns": [
        {
            "id": "GHSA-462w-v97r-4m45",
            "aliases": ["CVE-2019-10906"],
            "published": "2019-04-10T14:30:24Z",
            "affected": [
                {
                    "package": {"name": "jinja2", "ecosystem": "PyPI", "purl": "pkg:pypi/jinja2"},
                    "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.10.1"}]}],
                }
            ],
        }
    ]
}


@contextmanager
def database(status: int = 200) -> Iterator[str]:
    """The address of an OSV service that knows of one vulnerability, of jinja2."""

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(RECORDED if asked["package"]["name"] == "jinja2" else {}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Service) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()
        thread.join()


def locked(folder: Path, *packages: str) -> str:
    path = folder / "requirements.txt"
    path.write_text("".join(f"{package} --hash=sha256:{'0' * 64}\n" for package in packages))
    return str(path)


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file has a secret."""
    monkeypatch.setattr(audit, "secrets", lambda _: iter(()))


@pytest.mark.slow
@pytest.mark.usefixtures("clean")
def test_a_known_vulnerability_is_red_and_says_what_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with database() as url:
        locked(tmp_path, "six==1.17.0", "jinja2==2.4")
        (tmp_path / "more.txt").write_text("-r requirements.txt\n")
        old = audit.main(["--database", url, "--locked", str(tmp_path / "more.txt")])
        told = capsys.readouterr()
        assert old == Exit.FAILED
        assert "vulnerable: jinja2 2.4: CVE-2019-10906, GHSA-462w-v97r-4m45; fixed in 2.10.1\n" in told.out
        assert audit.main(["--database", url, "--locked", locked(tmp_path, "six==1.17.0")]) == Exit.GOOD
        assert "no known vulnerability, no secrets" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("clean")
def test_a_database_out_of_reach_is_said_and_never_passes_for_a_clean_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with database(status=503) as url:
        failing = audit.main(["--database", url, "--locked", locked(tmp_path, "six==1.17.0")])
    away = audit.main(["--database", url, "--locked", locked(tmp_path, "six==1.17.0")])
    told = capsys.readouterr()
    assert failing == away == Exit.CANNOT_KNOW
    assert told.err.count("could not reach the vulnerability database: not audited") == 2
    assert "vulnerability" not in told.out


def test_a_committed_secret_is_red_until_a_row_says_why_it_is_none(tmp_path: Path) -> None:
    # Amazon's own example, in two halves, which the scan of this file does not see.
    (tmp_path / "settings.py").write_text(f"KEY = 'AKIA{'IOSFODNN7EXAMPLE'}'\n")
    table = tmp_path / "none.csv"
    table.write_text("file,kind,digest,reason\n")
    (found,) = audit.secrets(["settings.py"], tmp_path, table)
    assert found.startswith("settings.py, line 1: AWS Access Key; ")
    table.write_text(table.read_text() + found.split("if it is none: ")[1].replace("REASON", "an example") + "\n")
    assert not list(audit.secrets(["settings.py"], tmp_path, table))
    (tmp_path / "settings.py").write_text("")
    (stale,) = audit.secrets(["settings.py"], tmp_path, table)
    assert "has no AWS Access Key" in stale


def test_the_sample_workflow_names_actions_by_commit_with_their_release() -> None:
    used = re.findall(r"uses: *(.+)", (ROOT / "docs" / "github-actions.yml").read_text())
    assert len(used) >= 5
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


@dataclass(frozen=True)
class Unpinned:
    """An image or OCI chart without a digest, as a pattern, and why that is taken."""

    reference: str
    reason: str


def images() -> set[str]:
    """Every image and OCI chart that a stack or a job is golden with, and what the jobs' own image is built from."""

    def among(value: Any, key: str = "") -> Iterator[str]:
        if isinstance(value, dict):
            for name, part in value.items():
                yield from among(part, name)
        elif isinstance(value, list):
            for part in value:
                yield from among(part, key)
        elif isinstance(value, str) and (key in ("image", "hmaimage", "repository") or value.startswith("oci://")):
            yield value

    recipes = (ROOT / "jobs").glob("image*/Dockerfile")
    found = {base for recipe in recipes for base in re.findall(r"^ARG BASE=(\S+)", recipe.read_text(), re.M)}
    # What a verb starts is in no stack.
    found.add(device_pods.IMAGE)
    for name in GOLDEN:
        found |= set(among(told(name)))
    for name in STACKS:
        found |= set(among(rendered(name)))
    return {one for one in found if "/" in one and "${" not in one}


def test_images_and_oci_charts_are_named_by_digest_or_a_row_says_why_not() -> None:
    rows = set(table(ROOT / "tools/supply/unpinned.csv", Unpinned, "reference"))
    without = {one for one in images() if not re.search(r"@sha256:[0-9a-f]{64}$", one)}
    assert without
    assert not {one for one in without if not any(fnmatchcase(one, row) for row in rows)}
    assert not {row for row in rows if not any(fnmatchcase(one, row) for one in without)}, "rows that nothing matches"


def test_renovate_finds_every_image_that_has_one_name_everywhere_and_adds_its_digest() -> None:
    (manager,) = json.loads((ROOT / "renovate.json").read_text())["customManagers"]
    # Renovate's groups are JavaScript's, and its patterns stand between slashes.
    (pattern,) = (re.compile(text.replace("(?<", "(?P<")) for text in manager["matchStrings"])
    files = [re.compile(text.strip("/")) for text in manager["managerFilePatterns"]]
    tracked = [name for name in audit.tracked() if any(one.search(name) for one in files)]
    found = {
        "{depName}:{currentValue}".format(**one)
        for name in tracked
        for one in map(re.Match.groupdict, pattern.finditer((ROOT / name).read_text()))
    }
    rows = table(ROOT / "tools/supply/unpinned.csv", Unpinned, "reference")
    assert {row for row in rows if "*" not in row and re.search(r":[^/]+$", row)} <= found
    assert pattern.fullmatch(f"registry.k8s.io/one:v1@sha256:{'0a' * 32}")
