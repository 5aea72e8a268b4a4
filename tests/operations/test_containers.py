"""``containers`` brings Enroot and Pyxis as they are pinned, or as the folder has known them since the first time."""

import gzip
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from components.slurm import container_packages
from operations.deployment import containers
from operations.deployment.containers import PACKAGES, bring
from operations.failures import Exit, Failure
from tests.operations.aws import ended, run

PYXIS = b"a tar archive"


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what is published."""
    folder = tmp_path / "published"
    folder.mkdir()
    for package in PACKAGES[:2]:
        (folder / package.file).write_text(package.name)
    (folder / PACKAGES[2].file).write_bytes(gzip.compress(PYXIS))
    pinned = replace(PACKAGES[2], sha256=hashlib.sha256(PYXIS).hexdigest())
    monkeypatch.setattr(containers, "PACKAGES", (*PACKAGES[:2], pinned))
    return folder


def test_brings_all_with_their_digests_into_a_folder_that_a_stack_takes(published: Path, tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    assert [(one.package, one.known) for one in bring(folder, published)] == [
        ("enroot", False),
        ("enroot+caps", False),
        ("pyxis", True),
    ]
    assert container_packages.problems({"containerPackages": str(folder)}) == []
    assert {path.name for path in folder.iterdir()} == {"SHA256SUMS", *(package.file for package in PACKAGES)}
    # The second time, nothing is asked of anybody, and all is known.
    assert all(one.known for one in bring(folder, tmp_path))


def test_another_file_than_the_first_time_is_refused_and_the_folder_stays(published: Path, tmp_path: Path) -> None:
    folder, name = tmp_path / "packages", PACKAGES[0].file
    bring(folder, published)
    before = (folder / "SHA256SUMS").read_text()
    (folder / name).unlink()
    (published / name).write_text("another")
    with pytest.raises(Failure, match=rf"{name} has the digest \w+, and not \w+ as .*SHA256SUMS says"):
        bring(folder, published)
    assert not (folder / name).exists()
    assert (folder / "SHA256SUMS").read_text() == before


@pytest.mark.parametrize(
    "content", [gzip.compress(b"other"), b"no archive", gzip.compress(PYXIS)[:-9]], ids=("other", "none", "half")
)
def test_source_that_is_not_as_pinned_is_refused(published: Path, tmp_path: Path, content: bytes) -> None:
    (published / PACKAGES[2].file).write_bytes(content)
    with pytest.raises(Failure, match=r"pyxis-0.24.0.tar.gz has the digest .* as this project says"):
        bring(tmp_path / "packages", published)


def test_source_that_is_compressed_otherwise_is_taken(published: Path, tmp_path: Path) -> None:
    (published / PACKAGES[2].file).write_bytes(gzip.compress(PYXIS, compresslevel=1, mtime=7))
    assert bring(tmp_path / "packages", published)[2].known


def test_what_else_is_in_the_folder_keeps_its_digest(published: Path, tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "jq_1.6_amd64.deb").write_text("jq")
    (folder / "SHA256SUMS").write_text(f"{hashlib.sha256(b'jq').hexdigest()}  jq_1.6_amd64.deb\n")
    bring(folder, published)
    assert container_packages.problems({"containerPackages": str(folder)}) == []


def test_the_verb_says_what_was_not_known_and_what_to_configure(published: Path, tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    out, _ = ended(Exit.GOOD, "download", "containers", str(folder), "--from", str(published))
    enroot, caps, pyxis, *commands = out.splitlines()
    assert enroot.endswith("new: compare it with another download")
    assert caps.endswith("new: compare it with another download")
    assert pyxis.endswith("as known")
    assert commands[-1].endswith(f"hyperpod:slurm.containerPackages {folder}")
    _, out, _ = run("download", "containers", str(folder), "--from", str(published), "--json")
    assert [one["known"] for one in json.loads(out)] == [True, True, True]


def test_a_missing_file_is_named_with_its_address(published: Path, tmp_path: Path) -> None:
    (published / PACKAGES[1].file).unlink()
    with pytest.raises(Failure) as failed:
        bring(tmp_path / "packages", published)
    assert "https://github.com/NVIDIA/enroot/releases/download/v4.1.2/enroot+caps_4.1.2" in failed.value.hint


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    _, err = ended(Exit.BAD_INPUT, "download", "containers", str(tmp_path / "file"))
    assert "is not a folder" in err
