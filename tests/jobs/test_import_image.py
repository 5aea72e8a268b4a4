"""hyperpod-import-image: any name of an image, one file for all nodes, and no password in any; what it warns of."""

import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import Any

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


COMPAT = "usr/local/cuda-12.8/compat/libcuda.so.570.86.10"
PLUGIN, NCCL = "opt/amazon/ofi-nccl/lib/libnccl-net.so", "usr/lib/python3/nvidia_nccl_cu12-2.28.9.dist-info"


def checked(folder: Path, *paths: str, plugin: str = "1.21.1", efa: bool = True, driver: bool = True) -> str:
    """What hyperpod-check-image says of an image with these paths, on a node with or without EFA and a driver."""
    (folder / "efa").mkdir()
    if efa:
        (folder / "efa/rdmap0s6").touch()
    if driver:
        # NVIDIA's open kernel module, 570.
        text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build\n"
        (folder / "driver").write_text(text)
    lists = "\n".join(f"squashfs-root/{path}" for path in paths)
    (folder / "unsquashfs").write_text(
        f"#!/bin/bash\nif [[ $1 == -l ]]; then echo '{lists}'; exit {int(not paths)}; fi\n"
        f"[[ $3 == {PLUGIN} ]] && printf 'x\\0Initializing aws-ofi-nccl {plugin}\\0'\n"
    )
    (folder / "unsquashfs").chmod(0o755)
    done = subprocess.run(
        ["bash", str(ROOT / "lifecycle/slurm/check-image.sh"), "/fsx/it.sqsh.part-1", "/fsx/it.sqsh"],
        env={
            "PATH": f"{folder}:{os.environ['PATH']}",
            "HYPERPOD_NVIDIA": str(folder / "driver"),
            "HYPERPOD_EFA": str(folder / "efa"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize(
    ("paths", "how", "said"),
    [
        ([PLUGIN, NCCL], {}, []),
        ([PLUGIN, NCCL], {"plugin": "1.20.0"}, []),
        # NVIDIA's own images keep it where no program finds it by itself.
        ([PLUGIN, COMPAT.replace("compat/", "compat/lib.real/")], {}, []),
        ([COMPAT, COMPAT.replace("570.86.10", "1"), PLUGIN], {}, ["(cuda-compat, 570.86.10)", "driver (570.133.20)"]),
        (["bin/bash"], {}, ["has no aws-ofi-nccl", "./efa_installer.sh --yes"]),
        (["bin/bash"], {"efa": False}, []),
        ([PLUGIN, NCCL], {"plugin": "1.17.2"}, ["NCCL 2.28.9 with aws-ofi-nccl 1.17.2", "1.20.0 or newer"]),
        ([PLUGIN, "usr/lib/libnccl.so.2.28.9"], {"plugin": "1.9.2"}, ["with aws-ofi-nccl 1.9.2"]),
        ([PLUGIN, "usr/lib/libnccl.so.2.27.7"], {"plugin": "1.17.2"}, []),
        ([COMPAT], {"driver": False}, []),
        ([], {}, ["/fsx/it.sqsh was not checked"]),
    ],
)
def test_an_image_that_nccl_fails_in_is_warned_of_with_the_fix(
    tmp_path: Path, paths: list[str], how: dict[str, Any], said: list[str]
) -> None:
    found = checked(tmp_path, *paths, **how)
    assert bool(found) == bool(said), found
    assert all(part in found for part in said), found
    assert found.count("WARNING: /fsx/it.sqsh ") == (1 if paths and said else 0)


def with_programs(script: str, folder: Path) -> str:
    """A script of this project whose programs are in this folder, where hyperpod-check-image prints its arguments."""
    check = folder / "hyperpod-check-image"
    check.write_text('#!/bin/bash\necho "checked: $*" >&2\n')
    check.chmod(0o755)
    text = (ROOT / "lifecycle" / script).read_text()
    assert "/opt/hyperpod/bin/hyperpod-check-image" in text
    return text.replace("/opt/hyperpod/bin", str(folder))


def test_an_image_is_checked_by_the_worker_that_imports_it(tmp_path: Path) -> None:
    script = tmp_path / "import-image.sh"
    script.write_text(with_programs("slurm/import-image.sh", tmp_path))
    for name, text in (("srun", 'while [[ $1 == --* ]]; do shift; done; exec "$@"'), ("enroot", 'echo image > "$3"')):
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    file = tmp_path / "it.sqsh"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", str(script), "ubuntu", str(file)], env=environment, capture_output=True, text=True, check=True
    )
    # The file that is complete, by the name that it gets then.
    assert re.fullmatch(rf"checked: {file}\.part-\d+ {file}\n", done.stderr)


@pytest.mark.parametrize(("image", "said"), [("it.sqsh", "checked: it.sqsh\n"), ("ubuntu", "ubuntu is not checked")])
def test_a_jobs_image_is_checked_before_its_first_step(tmp_path: Path, image: str, said: str) -> None:
    script = with_programs("training/container.sh", tmp_path) + '\necho "${container[0]}"\n'
    (tmp_path / "srun").write_text("#!/bin/bash\necho --container-image\n")
    (tmp_path / "srun").chmod(0o755)
    (tmp_path / "it.sqsh").touch()
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CONTAINER_IMAGE": image, "SLURM_SUBMIT_DIR": "/fsx"}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr.startswith(said)
    assert done.stdout == f"--container-image={image}\n"
