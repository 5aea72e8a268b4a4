"""hyperpod-import-image: any name of an image, one file for all nodes, and no password in any."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def import_image(tmp_path: Path, image: str, srun: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    """hyperpod-import-image with an srun of this text; what it said, and the file that it was to make."""
    (tmp_path / "srun").write_text(f"#!/bin/bash\n{srun}\n")
    (tmp_path / "srun").chmod(0o755)
    file = tmp_path / "images/it.sqsh"
    done = subprocess.run(
        ["bash", str(ROOT / "lifecycle/slurm/import-image.sh"), image, str(file)],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls")},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, file


# Its last arguments are the file and the image.
_IMPORTS = """printf '%s\\n' "${@: -1}" >> "$CALLS"
cat "$ENROOT_CONFIG_PATH/.credentials" >> "$CALLS" 2>/dev/null
echo image > "${@: -2:1}"
"""


@pytest.mark.parametrize(
    ("image", "asked"),
    [
        ("ubuntu:24.04", "ubuntu:24.04"),
        ("nvcr.io/nvidia/pytorch:25.10-py3", "nvcr.io#nvidia/pytorch:25.10-py3"),
        ("docker://nvcr.io#nvidia/pytorch", "nvcr.io#nvidia/pytorch"),
        ("localhost:5000/team/it", "localhost:5000#team/it"),
        ("team/it@sha256:0a1b", "team/it:sha256:0a1b"),
        ("nvcr.io/nvidia/pytorch:25.10-py3@sha256:0a1b", "nvcr.io#nvidia/pytorch:sha256:0a1b"),
    ],
)
def test_an_image_is_imported_by_any_of_its_names(tmp_path: Path, image: str, asked: str) -> None:
    """Enroot 3.4.1 takes a digest only as a tag, and a registry only before # (its docker.sh)."""
    done, file = import_image(tmp_path, image, _IMPORTS)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "calls").read_text() == f"docker://{asked}\n"
    assert file.read_text() == "image\n"
    assert done.stdout == f"{file} {hashlib.sha256(b'image' + bytes([10])).hexdigest()}\n"
    assert list(file.parent.iterdir()) == [file]
    again, _ = import_image(tmp_path, image, "false")
    assert again.returncode == 1
    assert again.stderr == f"{file} is there already; remove it to import it anew\n"


def test_an_image_of_ecr_is_pulled_by_the_workers_role_with_no_password_in_a_file(tmp_path: Path) -> None:
    done, file = import_image(tmp_path, "123456789012.dkr.ecr.us-west-2.amazonaws.com/team/it:1", _IMPORTS)
    assert done.returncode == 0, done.stderr
    registry = "123456789012.dkr.ecr.us-west-2.amazonaws.com"
    assert (tmp_path / "calls").read_text() == (
        f"docker://{registry}#team/it:1\n"
        f"machine {registry} login AWS password $(/opt/hyperpod/bin/hyperpod-credentials ecr us-west-2)\n"
    )
    assert list(file.parent.iterdir()) == [file]


def test_an_import_that_fails_leaves_nothing(tmp_path: Path) -> None:
    done, file = import_image(tmp_path, "ubuntu", 'echo half > "${@: -2:1}"; exit 3')
    assert done.returncode == 3
    assert list(file.parent.iterdir()) == []
