"""Make the folder of Python packages that ``make`` and Pulumi use. Needs nothing but the interpreter that runs it.

Every step says what it does and how long it took, and prints a dot each second: a silent terminal looks broken.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

ROOT = Path(__file__).resolve().parents[1]
# What programs import most of. Compiled here, or each process of a test run would compile it for itself.
COMPILED = (
    "botocore boto3 cfnlint/schema google jinja2 kubernetes/client matplotlib moto/core moto/ec2 moto/iam moto/rds "
    "moto/s3 moto/sagemaker numpy pulumi pulumi_eks pydantic rich typer werkzeug "
    "pulumi_aws/{amp,cloudwatch,ec2,ecr,eks,fsx,grafana,iam,kms,rds,s3,ssm,vpc} pulumi_aws_native/{eks,sagemaker} "
    "pulumi_kubernetes/{admissionregistration,apps,batch,core,meta,networking,storage} _pytest hypothesis libcst"
)


def lacking(python: Path) -> str:
    """Why this interpreter makes no environment, or nothing. Debian and Ubuntu ship what makes one as a package."""
    if importlib.util.find_spec("ensurepip") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"{python} cannot make an environment: apt-get install python{version}-venv (or choose another: PYTHON=)"
    return ""


def compiled(packages: str = COMPILED) -> list[str]:
    """The folders to compile, of ``a/{b,c}`` each."""
    found = []
    for word in packages.split():
        start, brace, rest = word.partition("{")
        found += [start + part for part in rest.rstrip("}").split(",")] if brace else [word]
    return found


def with_hashes(locked: Path, package: str) -> str:
    """One package's own entry in a locked file, for pip, which then takes no other file for it."""
    entry = re.search(rf"^{re.escape(package)}==.* --hash=.*\n", locked.read_text(), re.MULTILINE)
    if entry is None:
        raise LookupError(f"{locked} does not have {package}")
    return entry[0]


@contextmanager
def step(title: str, every: float = 1) -> Iterator[None]:
    """Say what happens, a dot every so many seconds, and how long it took."""
    began, ended = time.monotonic(), Event()
    print(title, end=" ", flush=True)

    def dots() -> None:
        while not ended.wait(every):
            print(".", end="", flush=True)

    ticking = Thread(target=dots, daemon=True)
    ticking.start()
    try:
        yield
    finally:
        ended.set()
        ticking.join()
        print(f" {time.monotonic() - began:.0f} s", flush=True)


def run(*words: str, folder: Path = ROOT) -> None:
    """Run a program without a word, or end with what it said."""
    done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"\n{done.stdout.strip()}\n`{' '.join(words)}` failed with {done.returncode}.")


def make(folder: Path, locked: Sequence[Path]) -> None:
    """Make the environment, or bring it to these locked files. Ends the process with a message where that fails."""
    python = folder / "bin" / "python"
    version = ".".join(map(str, sys.version_info[:3]))
    if f"version = {version}\n" not in _settings(folder):
        with step(f"Making {folder.name}/ with Python {version}"):
            run(sys.executable, "-m", "venv", "--clear", str(folder))
    with tempfile.TemporaryDirectory() as temporary, step("Installing uv, which installs the rest"):
        wanted = Path(temporary) / "uv.txt"
        wanted.write_text(with_hashes(ROOT / "requirements-dev.txt", "uv"))
        quiet = ("--quiet", "--disable-pip-version-check")
        run(str(python), "-m", "pip", "install", *quiet, "--require-hashes", "--only-binary=:all:", "-r", str(wanted))
    install = (str(folder / "bin" / "uv"), "pip", "install", "--quiet", "--python", str(python))
    names = " and ".join(path.name for path in locked)
    with step(f"Installing the packages of {names} (downloads them the first time)"):
        run(*install, *(word for path in locked for word in ("-r", str(path))))
        # By the setuptools of the lock: isolated, a build would download one without a hash.
        run(*install, "--no-deps", "--no-build-isolation", "--editable", ".")
    (packages,) = (folder / "lib").glob("python3.*/site-packages")
    with step("Compiling what is imported most"):
        there = [name for name in compiled() if (packages / name).exists()]
        run(str(python), "-m", "compileall", "-q", "-j", "0", *there, folder=packages)


def _settings(folder: Path) -> str:
    """What an environment's own file says, or nothing where there is none."""
    file = folder / "pyvenv.cfg"
    return file.read_text() if file.is_file() and (folder / "bin" / "python").exists() else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make an environment. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("locked", type=Path, nargs="+", metavar="requirements.txt")
    asked = parser.parse_args(arguments)
    if why := lacking(Path(sys.executable)):
        sys.stderr.write(f"{why}\n")
        return 2
    make(asked.folder.resolve(), [path.resolve() for path in asked.locked])
    return 0


if __name__ == "__main__":
    sys.exit(main())
