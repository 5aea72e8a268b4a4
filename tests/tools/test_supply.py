"""What this project is made of is pinned, licensed and looked up: a finding is red, an unreachable database is said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from components.catalogue.rows import read
from operations.cluster import device_pods
from stack.failures import Exit, Failure
from tests.support import ROOT
from tools.supply import audit, digests, licences
from tools.supply.bill import bill
from tools.supply.digests import UNPINNED, Unpinned

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


def test_every_packages_licence_is_known_and_accepted() -> None:
    every = {package.name: licences.licence(package.name) for package in licences.packages(ROOT)}
    assert not [name for name, said in every.items() if said is None], "add them to tools/supply/licences.csv"
    bad = {name: refused for name, said in every.items() if said and (refused := licences.refused(name, said))}
    assert not bad, "find another package, or add it to EXCEPTIONS with a reason"
    used = {(name, one) for one, (names, _) in licences.EXCEPTIONS.items() for name in names}
    assert {(name, one) for name, one in used if one not in (every.get(name) or "")} == set()
    rows = {row.package for row in read(ROOT / "tools/supply/licences.csv", licences.Said)}
    assert rows <= set(every), "rows about packages that are not locked any more"


@pytest.mark.parametrize(
    ("expression", "refused"),
    [
        ("MIT OR GPL-3.0-or-later", []),
        ("MIT AND GPL-3.0-or-later", ["GPL-3.0-or-later"]),
        ("(MIT OR AGPL-3.0-only) AND MPL-2.0", ["MPL-2.0"]),
    ],
)
def test_a_licence_is_accepted_by_what_its_expression_asks_for(expression: str, refused: list[str]) -> None:
    assert licences.refused("another", expression) == refused


@pytest.mark.slow
def test_the_bill_of_materials_is_valid_and_has_every_locked_package() -> None:
    made = bill()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(made) is None
    named = {component["purl"]: component for component in json.loads(made)["components"]}
    for package in licences.packages(ROOT):
        component = named[str(PackageURL(type="pypi", name=package.name, version=package.version))]
        assert component["licenses"]
        assert component["scope"] == ("required" if package.deployed else "optional")
        files = component["externalReferences"][0]["hashes"]
        assert {one["content"] for one in files} == set(package.digests)
    for name in ("enroot", "enroot+caps", "pyxis"):
        (found,) = [one for one in named.values() if one["name"] == name]
        assert found["licenses"] == [{"license": {"id": "Apache-2.0"}}]


def test_the_sample_workflow_names_actions_by_commit_with_their_release() -> None:
    used = re.findall(r"uses: *(.+)", (ROOT / "docs" / "github-actions.yml").read_text())
    assert len(used) >= 5
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


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

    found = set(re.findall(r"^ARG BASE=(\S+)", (ROOT / "jobs" / "image" / "Dockerfile").read_text(), re.M))
    # What a verb starts is in no stack.
    found.add(device_pods.IMAGE)
    for path in [*(ROOT / "tests/golden/deployments").rglob("*.yaml"), *(ROOT / "tests/golden/jobs").rglob("*.yaml")]:
        for document in yaml.load_all(path.read_text(), yaml.CSafeLoader):
            found |= set(among(document))
    return {one for one in found if "/" in one and "${" not in one}


def test_images_and_oci_charts_are_named_by_digest_or_a_row_says_why_not() -> None:
    rows = {row.reference for row in read(UNPINNED, Unpinned)}
    without = {one for one in images() if not re.search(r"@sha256:[0-9a-f]{64}$", one)}
    assert without
    assert not {one for one in without if not any(fnmatchcase(one, row) for row in rows)}
    assert not {row for row in rows if not any(fnmatchcase(one, row) for one in without)}, "rows that nothing matches"


DIGEST = f"sha256:{'0a' * 32}"


@contextmanager
def registry() -> Iterator[str]:
    """A registry that tells the digest of org/app:1.0 to whoever has fetched its token. Its host and port."""

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/token?service=a+registry&scope=repository%3Aorg%2Fapp%3Apull"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"token": "anybody"}')

        def do_HEAD(self) -> None:
            if self.headers["Authorization"] != "Bearer anybody":
                here = self.headers["Host"]
                self.send_response(401)
                scope = f'service="a registry",scope="repository:{self.path.split("/manifests")[0][4:]}:pull"'
                self.send_header("WWW-Authenticate", f'Bearer realm="http://{here}/token",{scope}')
            elif self.path == "/v2/org/app/manifests/1.0" and "oci.image.index" in self.headers["Accept"]:
                self.send_response(200)
                self.send_header("Docker-Content-Digest", DIGEST)
            else:
                self.send_response(404)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Registry) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_registry_is_asked_for_the_digest_of_a_tag_and_an_unknown_tag_is_said() -> None:
    with registry() as host:
        assert digests.digest(f"{host}/org/app:1.0", scheme="http") == DIGEST
        with pytest.raises(Failure, match=r"has no org/app:2.0") as missing:
            digests.digest(f"{host}/org/app:2.0", scheme="http")
    with pytest.raises(Failure, match="could not be asked about") as away:
        digests.digest(f"{host}/org/app:1.0", scheme="http")
    assert (missing.value.code, away.value.code) == (Exit.FAILED, Exit.CANNOT_KNOW)


def test_a_digest_is_written_where_the_image_is_named_and_its_row_goes(tmp_path: Path) -> None:
    table, code = tmp_path / "unpinned.csv", tmp_path / "code.py"
    table.write_text("reference,reason\nhost/app:1.0,none known\nhost/*,many\noci://host/chart,none known\n")
    code.write_text('A = "host/app:1.0"\nB = "host/app:1.0-rc"\nC = "mirror/app:1.0"\n')
    assert list(digests.by_tag(table)) == ["host/app:1.0"]
    assert digests.pin({"host/app:1.0": DIGEST}, ["code.py"], tmp_path, table) == ["code.py"]
    assert code.read_text() == f'A = "host/app:1.0@{DIGEST}"\nB = "host/app:1.0-rc"\nC = "mirror/app:1.0"\n'
    assert table.read_text() == "reference,reason\nhost/*,many\noci://host/chart,none known\n"
    assert not digests.pin({"host/app:1.0": DIGEST}, ["code.py"], tmp_path, table), "a second time changes something"
