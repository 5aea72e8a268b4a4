"""What people install is enough for every verb, and the interpreter that cannot make it says so in one line."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from operations import cli
from rehearsal import verbs as rehearsal_verbs
from tests.rows import each
from tests.support import ROOT
from tools import environment
from tools.supply.audit import entries

# The code that people run, by the locked file with the packages that it may import, and modules that are theirs.
PRODUCTS = {
    "requirements.txt": ("components", "operations", "hyperpod.py", "__main__.py"),
    "rehearsal/requirements.txt": ("rehearsal",),
}
OWN = {"components", "operations", "rehearsal", "hyperpod", "hyperpod_node", "hyperpod_commands", "training"}
# What only a simulated node's own Python imports: `make node-packages` installs it.
ON_NODES = ("rehearsal/nodes/stubs/",)
# What verbs answer without an account, beside their help: exit code 0, or 3 where the answer needs credentials.
WITHOUT_ACCOUNT = {
    "list": 0,
    "types --accelerator gpu": 0,
    "cost dev": 0,
    "explain workers": 0,
    "assumptions": 0,
    "job print eks-gpu nanogpt": 0,
    "init mine --accelerator gpu --instance-type ml.g5.16xlarge --nodes 2 --dry-run": 0,
    "quotas dev": 3,
    "status dev": 3,
}
# What the rehearsal's packages are for.
WITH_REHEARSAL = (
    "policy dev --account 123456789012",
    "deploy dev --rehearse --yes",
    "rehearse dev --report report.html",
    "policy eks-gpu --account 123456789012 --json",
    "preview dev --rehearse",
    "destroy eks-gpu --rehearse --yes",
    "rehearse slurm-gpu --then hyperpod:size=large",
    "rehearse drill dev --only capacity",
    "rehearse nodes dev --if-possible",
    "rehearse eks eks-gpu --if-possible",
)
# Runs verbs, each an argument, where the modules that the first argument names are not installed.
ISOLATED = """
import json, sys
from importlib.machinery import PathFinder
absent = set(json.loads(sys.argv[1]))
class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in absent else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
import hyperpod
hyperpod.join()
from operations.cli import main
for line in sys.argv[2:]:
    print(f"\\n{main(line.split())} {line}", flush=True)
"""


def locked(name: str) -> set[str]:
    return {entry.partition("==")[0] for entry in entries(ROOT / name)}


def files_of(folders: Sequence[str]) -> list[str]:
    tracked = subprocess.check_output(["git", "ls-files", *folders], cwd=ROOT, text=True)
    return [name for name in tracked.split() if name.endswith(".py") and not name.startswith(ON_NODES)]


@each((file, folders) for file, folders in PRODUCTS.items())
def test_what_a_product_imports_is_what_people_install_for_it(file: str, folders: Sequence[str]) -> None:
    files = files_of(folders)
    assert len(files) > 100
    found, wanted = packages_distributions(), locked(file)
    missing: dict[str, str] = {}
    for name in files:
        text = (ROOT / name).read_text()
        for module in re.findall(r"^ *(?:from|import) ([a-zA-Z]\w*)[\w.]*(?: import | as |$)", text, re.MULTILINE):
            if module in OWN or module in sys.stdlib_module_names:
                continue
            names = {one.lower().replace("_", "-") for one in found.get(module, ())}
            if not names & wanted:
                missing[name] = module
    assert not missing, f"add their packages to {file.replace('.txt', '.in')}"


def without_account(home: Path, path: str = "/usr/bin:/bin") -> dict[str, str]:
    """The environment of somebody without credentials."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON", "VIRTUAL_ENV"))}
    return kept | {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(home), "PATH": path}


@pytest.mark.slow
def test_verbs_that_need_no_rehearsal_run_without_its_packages(tmp_path: Path) -> None:
    own = locked("rehearsal/requirements.txt") - locked("requirements.txt")
    absent = [
        module
        for module, packages in packages_distributions().items()
        if {one.lower().replace("_", "-") for one in packages} <= own
    ]
    assert {"moto", "cfnlint", "policy_sentry"} <= {*absent}
    helped = [f"{command.name} --help" for command in cli.app.registered_commands]
    expected = WITHOUT_ACCOUNT | dict.fromkeys(helped, 0) | dict.fromkeys(WITH_REHEARSAL[:3], 3)
    done = subprocess.run(
        [sys.executable, "-c", ISOLATED, json.dumps(absent), *expected],
        cwd=ROOT, env=without_account(tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    codes = {line: int(code) for code, line in re.findall(r"^(\d+) (.*)$", done.stdout, re.MULTILINE)}
    assert {line: codes.get(line) for line in expected} == expected, done.stderr
    assert done.stderr.count("is missing in") == done.stderr.count("pip install -r rehearsal/requirements.txt") == 3


def test_the_locked_packages_are_for_the_oldest_python_that_the_project_takes() -> None:
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert f"--python-version {oldest} " in (ROOT / "Makefile").read_text()
    found = entries(ROOT / "requirements-dev.txt")
    # The publishers of these left Debian 12's 3.11.2 behind.
    for name in ("soupsieve", "pymdown-extensions"):
        assert any(entry.startswith(f"{name}==") and "python_full_version < '3.11.5'" in entry for entry in found)


def test_people_install_no_tools_of_tests_and_of_the_site() -> None:
    ours = locked("rehearsal/requirements.txt")
    assert not locked("requirements.txt") & {"moto", "cfn-lint", "policy-sentry", "kubernetes-validate", "docker"}
    assert locked("requirements.txt") < ours
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


def test_what_make_check_runs_is_never_silent_and_ends_as_it_does() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    words = ["make", "--dry-run", "--no-print-directory", "--old-file=venv/.tests", "check"]
    shown = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert "mypy components" in shown
    assert all(" -m tools.step " in line for line in shown.splitlines())
    words = [sys.executable, "-m", "tools.step", "Waiting", "sh", "-c", "echo said; exit 5"]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout[:7], "said" in ended.stderr) == (1, "Waiting", True)


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

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = without_account(tmp_path, f"{folder}/bin:/usr/bin:/bin")
        return subprocess.run(
            words, cwd=project, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )

    def wrong(expected: Mapping[str, int]) -> dict[str, str]:
        ended = {command: run("hyperpod", *command.split()) for command in expected}
        return {
            command: f"{done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}"
            for command, done in ended.items()
            if done.returncode != expected[command] or "Traceback" in done.stderr
        }

    helped = (
        "import hyperpod, sys; hyperpod.join(); from operations.cli import main; "
        "sys.exit(max(main(one.split()) for one in sys.argv[1:]))"
    )
    verbs = [str(command.name) for command in cli.app.registered_commands]
    verbs += ["job", "rehearse", *(f"rehearse {command.name}" for command in rehearsal_verbs.app.registered_commands)]
    shown = run(str(folder / "bin/python"), "-c", helped, *(f"{verb} --help" for verb in verbs))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("Usage: hyperpod") == len(verbs)
    assert not wrong(WITHOUT_ACCOUNT | dict.fromkeys(WITH_REHEARSAL[:1], 3))
    subprocess.run([*uv, ".[rehearsal]"], cwd=project, check=True)
    assert not wrong(dict.fromkeys(WITH_REHEARSAL, 0))


def test_each_locked_file_has_only_what_the_files_that_it_names_have_not() -> None:
    everything = entries(ROOT / "requirements-dev.txt")
    assert len(everything) == len(set(everything)) > 150
