"""The project keeps its own promises: documentation in step, every test collected, every dependency explained."""

import ast
import re
import subprocess
import tomllib

import pytest
import yaml

from components.config import parse
from operations.engine.durations import durations
from rehearsal.account.kinds import KINDS
from tests.support import READY_STACKS, ROOT, plan
from tools.pages import reference
from tools.supply.audit import entries


def test_pages_say_what_the_model_pulumi_yaml_and_the_advice_say() -> None:
    for path, text in reference.pages().items():
        assert path.read_text() == text, f"{path.name} is stale: `make docs-reference`"


def test_every_key_says_what_a_change_of_it_does() -> None:
    for key in (one for top in reference.found() for one in (top, *top.below())):
        assert key.change or key.parts, f"{key.path} has no Change"
        assert key.meaning, f"{key.path} has no description"


def test_every_file_with_tests_is_collected() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        if re.search(r"^def test_", path.read_text(), re.MULTILINE):
            assert path.name.startswith("test_"), f"{path} is never collected"


def test_every_pinned_dependency_says_why_it_is_there() -> None:
    for line in (read("requirements.in") + read("rehearsal/requirements.in")).splitlines():
        if line and not line.startswith(("#", "-r")):
            assert re.fullmatch(r"[\w-]+==[\w.!]+ +# .+", line), line


def locked(name: str) -> dict[str, str]:
    """The packages of a requirements file, with their versions. Each has a hash, so that nothing else is installed."""
    text = "".join(entries(ROOT / name))
    found = re.findall(r"^([\w.-]+)==([\w.!]+)[^-\n]*(?: --hash=sha256:\w{64})+$", text, re.M)
    assert text.count("\n") == len(found), f"{name}: packages without a hash"
    assert all(line.startswith(("#", "-r ")) or f"{line}\n" in text for line in read(name).splitlines())
    return {package.lower(): version for package, version in found}


def read(name: str) -> str:
    return (ROOT / name).read_text()


def test_what_is_installed_is_locked_by_version_and_hash() -> None:
    program, everything = locked("requirements.txt"), locked("requirements-dev.txt")
    site, rehearsal = locked("requirements-docs.txt"), locked("rehearsal/requirements.txt")
    for name, found in (
        ("requirements.in", program),
        ("rehearsal/requirements.in", rehearsal),
        ("requirements-docs.in", site),
        ("requirements-dev.in", everything),
    ):
        wanted = dict(re.findall(r"^([\w-]+)==([\w.!]+)", read(name), re.M))
        missing = {p: v for p, v in wanted.items() if found.get(p.lower()) != v}
        assert not missing, f"make requirements: {name} has {missing}"
    differing = {p for p, version in (*rehearsal.items(), *site.items()) if everything.get(p) != version}
    assert not differing, "make requirements: the files name different versions"


def test_types_are_checked_of_every_part_of_an_sdk_that_the_program_uses_and_of_no_other() -> None:
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    (named,) = (o["module"] for o in overrides if "pulumi_aws" in o["module"])
    checked = {
        name.removesuffix(".*") for name in named if re.fullmatch(r"pulumi_aws(_native)?\.[a-z]\w+(\.\*)?", name)
    }
    used = {"pulumi_aws.provider", "pulumi_aws_native.provider"}
    for path in [*(ROOT / "components").rglob("*.py"), ROOT / "__main__.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(value=ast.Name(id="aws" | "aws_native" as sdk), attr=part) if part.islower():
                    used.add(f"pulumi_{sdk}.{part}")
                case ast.ImportFrom(module=str(module)):
                    assert not module.startswith("pulumi_aws"), f"{path} imports {module} otherwise than all others"
    assert checked == used


def test_every_type_the_account_makes_has_a_duration_with_its_source() -> None:
    assert set(KINDS) <= set(durations())


@pytest.mark.slow
def test_every_ready_stack_is_one_variant_and_says_so_in_its_name() -> None:
    for stack in READY_STACKS[1:]:
        outputs = plan(stack).outputs
        assert outputs["clusterName"] == stack


def test_pulumi_new_makes_a_project_that_works_of_this_repository() -> None:
    """What `pulumi new URL` does: it copies every file, replaces two words in them, and asks for the template's keys.

    Source: pulumi/pulumi, sdk/go/common/workspace/templates.go (walkFiles, transform) and project.json (template).
    """
    description = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
    template = description["template"]
    assert template.keys() <= {"displayName", "description", "quickstart", "important", "metadata", "config"}
    for key, asked in template["config"].items():
        assert asked.keys() <= {"description", "default", "secret"}, key
        # Keys are the project's: a template must not give it another name.
        assert key.startswith(("aws:", f"{description['name']}:"))
    assert parse({key: asked["default"] for key, asked in template["config"].items()}).region.name == "us-west-2"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    words = ("${" + "PROJECT}", "${" + "DESCRIPTION}")
    for name in listed.split("\0"):
        path = ROOT / name
        assert not any(word in name for word in words)
        if path.is_file() and b"\0" not in (content := path.read_bytes())[:8000]:
            assert not any(word.encode() in content for word in words), f"{name} would not be copied as it is"


def test_no_file_is_too_large_to_be_reviewed() -> None:
    """What a tool left behind, such as a package, belongs into no commit."""
    tracked = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    large = [name for name in tracked if name and (path := ROOT / name).is_file() and path.stat().st_size > 500_000]
    assert large == []


def test_import_linter_reads_every_module_and_nothing_imports_the_entry_points() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    roots = {f"lifecycle/{name}" if name.startswith("hyperpod_") else name for name in settings["root_packages"]}
    for name in subprocess.check_output(["git", "ls-files", *roots], cwd=ROOT, text=True).split():
        path = ROOT / name
        if path.suffix == ".py" and not name.startswith("rehearsal/nodes/stubs/"):
            assert (path.parent / "__init__.py").is_file(), f"{path.parent} is no package"
            imports = re.search(r"^ *(?:import hyperpod\b|from hyperpod import)", path.read_text(), re.MULTILINE)
            assert not imports or name == "operations/__main__.py", f"{name} imports hyperpod.py"
