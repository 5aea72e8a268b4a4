"""The folder of Enroot's and Pyxis's packages, ``hyperpod:slurm.containerPackages``: its files, and their problems.

The folder is on the machine that deploys, so only a deployment reads it; a node gets the files with the lifecycle
scripts, and checks them by the same digests.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from hyperpod_node.slurm.containers import SUMS, digests

from ..schema.problems import Problem

KEY = "hyperpod:slurm.containerPackages"
FILL = "hyperpod download containers FOLDER fills one"
# Every node downloads them when it boots; Enroot and Pyxis are less than a megabyte.
MOST_BYTES = 64 << 20


def files(packages: str | None) -> list[Path]:
    """Return the packages of the folder and their digests, in a stable order."""
    if not packages:
        return []
    folder = Path(packages)
    return [folder / name for name in sorted([SUMS, *digests((folder / SUMS).read_text())])]


def problems(slurm: object) -> list[Problem]:
    """Yield every problem of the folder, if the keys of Slurm name one."""
    folder = slurm.get("containerPackages") if isinstance(slurm, dict) else None
    return list(_problems(Path(folder))) if folder and isinstance(folder, str) else []


def _problems(folder: Path) -> Iterator[Problem]:
    sums = folder / SUMS
    if not sums.is_file():
        what = f"{folder} has no {SUMS}" if folder.is_dir() else f"there is no folder {folder}"
        yield Problem(key=KEY, what=what, fix=FILL)
        return
    wanted = digests(sums.read_text())
    if not wanted:
        yield Problem(key=KEY, what=f"{sums} has no digest", fix=FILL)
    size = 0
    for name, digest in wanted.items():
        path = folder / name
        if not path.is_file():
            yield Problem(key=KEY, what=f"{path} is missing, which {SUMS} names", fix=FILL)
            continue
        size += path.stat().st_size
        if (found := hashlib.sha256(path.read_bytes()).hexdigest()) != digest:
            fix = f"it should have {digest}: download it again, and trust no other"
            yield Problem(key=KEY, what=f"{path} has the digest {found}", fix=fix)
    for path in sorted(folder.iterdir()):
        if path.name not in {SUMS, *wanted} and not path.name.startswith("."):
            fix = f"(cd {folder} && sha256sum {path.name} >> {SUMS}), or move it elsewhere"
            yield Problem(key=KEY, what=f"{SUMS} has no digest of {path.name}", fix=fix)
    if size > MOST_BYTES:
        yield Problem(key=KEY, what=f"{folder} has {size} bytes", fix=f"at most {MOST_BYTES}: no container images")
