"""What people install is enough for every verb, and the interpreter that cannot make it says so in one line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from operations import cli
from rehearsal import cli as rehearsal_cli
from tests.support import ROOT
from tools import environment
from tools.supply.locks import entries

# Folders of code that people run, and modules that are theirs.
PRODUCT = ("components", "operations", "rehearsal")
OWN = {*PRODUCT, "hyperpod", "hyperpod_node", "hyperpod_commands", "training"}
# What only a simulated node's own Python imports: `make node-packages` installs it.
ON_NODES = ("rehearsal/nodes/stubs/",)
# What verbs answer without an account, beside their help: exit code 0, or 3 where the answer needs credentials.
WITHOUT_ACCOUNT = {
    "list": 0,
    "types --accelerator gpu": 0,
    "cost dev": 0,
    "explain workers": 0,
    "policy dev --account 123456789012": 0,
    "policy eks-gpu --account 123456789012 --json": 0,
    "assumptions": 0,
    "job print eks-gpu nanogpt": 0,
    "init mine --accelerator gpu --instance-type ml.g5.16xlarge --nodes 2": 0,
    "deploy dev --rehearse --yes": 0,
    "preview dev --rehearse": 0,
    "destroy eks-gpu --rehearse --yes": 0,
    "rehearse dev --report report.html": 0,
    "rehearse slurm-gpu --then hyperpod:size=large": 0,
    "rehearse drill dev --only capacity": 0,
    "rehearse nodes dev --if-possible": 0,
    "rehearse eks eks-gpu --if-possible": 0,
    "quotas dev": 3,
    "status dev": 3,
}


def locked(name: str) -> set[str]:
    return {entry.partition("==")[0] for entry in entries(ROOT / name)}


def product_files() -> Iterator[str]:
    tracked = subprocess.check_output(["git", "ls-files", *PRODUCT, "hyperpod.py", "__main__.py"], cwd=ROOT, text=True)
    return (name for name in tracked.split() if name.endswith(".py") and not name.startswith(ON_NODES))


def test_what_the_program_and_its_verbs_import_is_what_people_install() -> None:
    files = list(product_files())
    assert len(files) > 200
    found, wanted = packages_distributions(), locked("requirements.txt")
    missing: dict[str, str] = {}
    for name in files:
        text = (ROOT / name).read_text()
        for module in re.findall(r"^ *(?:from|import) ([a-zA-Z]\w*)[\w.]*(?: import | as |$)", text, re.MULTILINE):
            if module in OWN or module in sys.stdlib_module_names:
                continue
            names = {one.lower().replace("_", "-") for one in found.get(module, ())}
            if not names & wanted:
                missing[name] = module
    assert not missing, "add their packages to requirements.in"


def test_the_locked_packages_are_for_the_oldest_python_that_the_project_takes() -> None:
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert f"--python-version {oldest} " in (ROOT / "Makefile").read_text()
    found = entries(ROOT / "requirements-dev.txt")
    # The publishers of these left Debian 12's 3.11.2 behind.
    for name in ("soupsieve", "pymdown-extensions"):
        assert any(entry.startswith(f"{name}==") and "python_full_version < '3.11.5'" in entry for entry in found)


def test_people_install_no_tools_of_tests_and_of_the_site() -> None:
    ours = locked("requirements.txt")
    assert not ours & {"pytest", "hypothesis", "mypy", "ruff", "uv", "zensical", "checkov"}
    assert ours < locked("requirements-dev.txt")
    assert locked("requirements-docs.txt") < locked("requirements-dev.txt")


def made(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    """What make says to somebody with that interpreter; the folder has no environment yet."""
    words = ["make", f"VENV={folder / 'venv'}", f"PYTHON={python}", str(folder / "venv/.ready")]
    # A make around this one has its say in what this one prints.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert not (folder / "venv").exists()
    return done


def imitation(folder: Path, before: str) -> str:
    """An interpreter that runs what it is told after these lines."""
    program = folder / "python"
    own = f'import runpy; runpy.run_path("{ROOT}/tools/environment.py", run_name="__main__")'
    program.write_text(
        f"#!/bin/sh\nif [ \"$1\" = -c ]; then code=$2; else code='{own}'; shift; fi\n"
        f'exec {sys.executable} -c "{before}\n$code" "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


def test_a_python_that_is_too_old_is_told_in_one_line_before_anything_is_made(tmp_path: Path) -> None:
    said = made(tmp_path, imitation(tmp_path, "import sys; sys.version_info = (3, 9, 18)")).stderr.splitlines()
    assert said[0].endswith(" is Python 3.9: this needs 3.11 or newer. Choose another: make PYTHON=python3.12")
    assert len(said) == 2  # The other is make's own.


def test_a_machine_without_python_is_told_so(tmp_path: Path) -> None:
    assert made(tmp_path, "no-python").stderr.startswith("PYTHON=no-python is no program.\n")
    assert made(tmp_path, "").stderr.startswith("No Python 3.11 or newer was found. Install one, or set PYTHON= to ")


def test_debians_python_without_its_venv_package_names_the_package(tmp_path: Path) -> None:
    without = "import importlib.util as u; u.find_spec = lambda name: None"
    said = made(tmp_path, imitation(tmp_path, without)).stderr.splitlines()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"cannot make an environment: apt-get install python{version}-venv" in said[0]


def test_only_the_hashes_of_the_lock_install_the_installer(tmp_path: Path) -> None:
    entry = environment.with_hashes(ROOT / "requirements-dev.txt", "uv")
    assert entry.startswith("uv==")
    assert entry.count("--hash=sha256:") > 5
    assert len(re.findall("==", entry)) == 1
    with pytest.raises(LookupError, match="does not have uvx"):
        environment.with_hashes(ROOT / "requirements-dev.txt", "uvx")


def test_a_step_is_never_silent(capsys: pytest.CaptureFixture[str]) -> None:
    said = ""
    with environment.step("Waiting", every=0.001):
        for _ in range(1000):
            time.sleep(0.001)
            said += capsys.readouterr().out
            if said.endswith("..."):
                break
    assert said.startswith("Waiting ...")
    assert re.fullmatch(r"\.* 0 s\n", capsys.readouterr().out)


def test_a_step_that_fails_says_what_the_program_said() -> None:
    with pytest.raises(SystemExit, match=r"(?s)no room.*`sh -c .*` failed with 5\."):
        environment.run("sh", "-c", "echo no room; exit 5")


def test_every_folder_to_compile_is_installed() -> None:
    packages = Path(str(pytest.__file__)).parents[1]
    assert [name for name in environment.compiled() if not (packages / name).is_dir()] == []


@pytest.mark.slow
def test_what_docs_operations_offers_to_install_runs_every_verb(tmp_path: Path) -> None:
    """``pip install .`` in an environment of its own, by the distribution's Python where it is new enough."""
    project, folder = tmp_path / "project", tmp_path / "venv"
    for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")[:-1]:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, project / name, follow_symlinks=False)
    debian = "/usr/bin/python3"
    new = subprocess.run([debian, "-c", "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))"], check=False)
    subprocess.run(
        [debian if new.returncode == 0 else sys.executable, "-m", "venv", "--without-pip", folder], check=True
    )
    uv = (
        str(Path(sys.executable).with_name("uv")),
        "pip",
        "install",
        "--quiet",
        "--python",
        str(folder / "bin/python"),
    )
    installed = subprocess.run([*uv, "."], cwd=project, capture_output=True, text=True, check=False)
    if "error sending request" in installed.stderr or "Failed to fetch" in installed.stderr:
        pytest.skip(f"the package registry is out of reach: {installed.stderr.strip().splitlines()[-1]}")
    assert installed.returncode == 0, installed.stderr
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON", "VIRTUAL_ENV"))
    } | {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path), "PATH": f"{folder}/bin:/usr/bin:/bin"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=project, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )

    helped = "from operations import cli; import sys; sys.exit(max(cli.main(one.split()) for one in sys.argv[1:]))"
    verbs = [str(command.name) for command in cli.app.registered_commands]
    verbs += ["job", "rehearse", *(f"rehearse {command.name}" for command in rehearsal_cli.app.registered_commands)]
    shown = run(str(folder / "bin/python"), "-c", helped, *(f"{verb} --help" for verb in verbs))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("Usage: hyperpod") == len(verbs)
    ended = {command: run("hyperpod", *command.split()) for command in WITHOUT_ACCOUNT}
    wrong = {
        command: f"{done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}"
        for command, done in ended.items()
        if done.returncode != WITHOUT_ACCOUNT[command] or "Traceback" in done.stderr or "is missing in" in done.stderr
    }
    assert not wrong


def test_each_locked_file_has_only_what_the_files_that_it_names_have_not() -> None:
    everything = entries(ROOT / "requirements-dev.txt")
    assert len(everything) == len(set(everything)) > 150
