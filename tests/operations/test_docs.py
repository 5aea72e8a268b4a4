"""What people copy works: the workflow for GitHub, the Python example, the commands and links of every page."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
import yaml

from components.common.documents import load
from components.config.keys import keys
from operations import cli
from operations import target as targets
from operations.cluster import benchmark
from operations.deployment import deploy, engines
from operations.terminal import command_line
from tests.operations.aws import verb_of
from tests.support import ROOT

# A command keeps those of its first context; verbs have them from the whole command line.
_HELP = ["-h", "--help"]
WORKFLOW = ROOT / "docs" / "github-actions.yml"
_COMMAND = re.compile(r"(?:^ *|`|/|run: |&& |  )hyperpod ([^\n|`#<>]+)", re.M)


def check(line: str) -> None:
    """A command is one that ``hyperpod`` takes: its verb, its options and their values; a page may leave words out."""
    words = shlex.split(line.split("   ")[0].strip().rstrip(".,;:)"))
    if not words or words[0] in ("VERB", "--help", "--install-completion", "--show-completion", "--version"):
        return
    verb, rest = verb_of(words)
    try:
        verb.make_context(verb.name, rest, help_option_names=_HELP)
    except typer.TyperException as refused:
        said = refused.format_message()
        assert said.startswith("Missing ") or not said, f"hyperpod {shlex.join(words)}: {said}"


def commands(text: str) -> Iterator[str]:
    """The commands that a text shows."""
    return (match.group(1) for match in _COMMAND.finditer(text))


def workflow() -> dict[str, Any]:
    return dict(yaml.safe_load(WORKFLOW.read_text()))


def test_the_workflow_gives_pull_requests_no_right_and_deploys_main_without_a_stored_key() -> None:
    found = workflow()
    # YAML 1.1 reads the key "on" as true.
    triggers: dict[str, Any] = found[True]  # type: ignore[index]
    assert set(triggers) == {"pull_request", "push"}
    assert triggers["push"]["branches"] == ["main"]
    # What every job gets: neither a token for AWS, nor the state, nor a secret.
    assert found["permissions"] == {"contents": "read"}
    assert "env" not in found
    assert "secrets." not in WORKFLOW.read_text()
    foreign, deploy = found["jobs"]["rehearse"], found["jobs"]["deploy"]
    assert "github.event_name == 'pull_request'" in foreign["if"]
    assert not {"permissions", "environment", "env"} & foreign.keys()
    assert not any("aws" in step.get("uses", "") for step in foreign["steps"])
    credentials = [step["with"] for step in deploy["steps"] if "configure-aws-credentials" in step.get("uses", "")]
    assert [one["role-to-assume"] for one in credentials] == ["${{ vars.AWS_DEPLOY_ROLE_ARN }}"]
    assert not any("key" in name for name in credentials[0])
    # The environment is what the deploying role's trust policy asks for.
    assert deploy["environment"] == "hyperpod"
    assert deploy["permissions"] == {"contents": "read", "id-token": "write"}
    runs = {name: " ".join(step.get("run", "") for step in job["steps"]) for name, job in found["jobs"].items()}
    assert " deploy " not in runs["rehearse"]
    verbs = [
        runs["deploy"].index(f"hyperpod {verb} ") for verb in ("quotas", "preview", "deploy", "validate", "benchmark")
    ]
    assert verbs == sorted(verbs)


def test_who_comments_on_a_pull_request_runs_none_of_its_code_and_takes_its_words_for_no_command() -> None:
    """GitHub Docs, "Security hardening for GitHub Actions": untrusted text goes through the environment."""
    jobs = workflow()["jobs"]
    comment = jobs["comment"]
    assert comment["needs"] == "rehearse"
    assert comment["permissions"] == {"pull-requests": "write"}
    assert "head.repo.full_name == github.repository" in comment["if"]
    assert not [step for step in comment["steps"] if "uses" in step], "no checkout, no artefact"
    (step,) = comment["steps"]
    assert "${{" not in step["run"]
    assert step["env"]["TOLD"] == "${{ needs.rehearse.outputs.told }}"
    assert jobs["rehearse"]["outputs"] == {"told": "${{ steps.told.outputs.text }}"}
    assert any(one.get("id") == "told" for one in jobs["rehearse"]["steps"])


@pytest.mark.parametrize(
    "told", ["Change 1\n$(touch made) `touch made`\nend-of it\n~~~\n@everyone\n", "one\rline <b>\n", ""]
)
def test_what_a_pull_request_says_reaches_the_comment_as_it_is(told: str, tmp_path: Path) -> None:
    """The two steps of the workflow, run in a shell; a gh that prints what it would write."""
    jobs = workflow()["jobs"]
    (keep,) = (step for step in jobs["rehearse"]["steps"] if step.get("id") == "told")
    (post,) = jobs["comment"]["steps"]
    (tmp_path / "gh").write_text("#!/bin/sh\ncat comment.md\n")
    (tmp_path / "gh").chmod(0o755)
    if told:
        (tmp_path / "told.txt").write_bytes(told.encode())
    out = tmp_path / "output"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_OUTPUT": str(out)}
    shell = ["bash", "-eo", "pipefail", "-c"]
    subprocess.run([*shell, keep["run"]], cwd=tmp_path, env=environment, check=True, stderr=subprocess.DEVNULL)
    # GitHub Docs, "Workflow commands": NAME<<DELIMITER, the lines, the delimiter.
    found = re.fullmatch(r"text<<(\S+)\n(.*)\n\1\n", out.read_bytes().decode(), re.S)
    assert found
    assert found[2] == (told or "Nothing was compared.\n")
    environment |= {"TOLD": found[2], "VERDICT": "success", "NUMBER": "3", "REPOSITORY": "owner/name"}
    posted = subprocess.run(
        [*shell, post["run"]], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    verdict, gap, *lines = posted.stdout.splitlines()
    assert (verdict, gap) == ("Rehearsal: **success**", "")
    # CommonMark, "Indented code blocks" and "Line ending": a carriage return ends a line, too.
    assert all(line.startswith("    ") for line in lines)
    assert "\r" not in posted.stdout
    assert [line[4:] for line in lines if line.strip()] == found[2].replace("\r", " ").splitlines()
    assert not (tmp_path / "made").exists()


def test_the_workflow_installs_the_command_that_it_calls() -> None:
    for name, job in workflow()["jobs"].items():
        if name == "comment":
            continue
        runs = [step["run"] for step in job["steps"] if "run" in step]
        first = next(number for number, run in enumerate(runs) if "bin/hyperpod" in run)
        assert any("pip install --no-deps --no-build-isolation --no-index -e ." in run for run in runs[:first])


def test_the_workflow_installs_what_is_locked_before_it_has_credentials_and_keeps_no_token() -> None:
    for name, job in workflow()["jobs"].items():
        if name == "comment":
            continue
        steps = job["steps"]
        (checkout,) = [step for step in steps if "actions/checkout" in step.get("uses", "")]
        assert checkout["with"]["persist-credentials"] is False
        used = [step.get("uses", "").partition("@")[0] for step in steps]
        (installing,) = [number for number, step in enumerate(steps) if "pip install" in step.get("run", "")]
        assert "aws-actions/configure-aws-credentials" not in used[:installing]
        for line in steps[installing]["run"].splitlines():
            if "pip install" in line:
                # What is built here is built by a package of the lock, and nothing else is downloaded.
                alone = "--no-deps --no-build-isolation --no-index"
                assert "--require-hashes --only-binary :all:" in line or alone in line
        assert not [step for step in steps if "git fetch" in step.get("run", "")], "it needs the token"


def test_the_workflow_installs_the_cli_of_the_sdk() -> None:
    (cli_step,) = [s for s in workflow()["jobs"]["deploy"]["steps"] if s.get("uses", "").startswith("pulumi/actions@")]
    sdk = re.search(r"^pulumi==(\S+)", (ROOT / "requirements.in").read_text(), re.M)
    assert sdk
    assert cli_step["with"] == {"pulumi-version": sdk[1]}


def test_the_workflow_runs_commands_that_exist() -> None:
    lines = [step["run"] for job in workflow()["jobs"].values() for step in job["steps"] if "run" in step]
    found = [line for text in lines for line in commands(text.replace("${{ vars.STACK }}", "dev"))]
    assert len(found) >= 5
    for line in found:
        check(line)


def test_a_piped_command_keeps_its_exit_code() -> None:
    for job in workflow()["jobs"].values():
        for step in job["steps"]:
            if "| tee" in step.get("run", "") and "hyperpod cost" not in step["run"]:
                assert step["shell"] == "bash"


PAGES = [
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("rehearsal/*.md"))
]


ALERTS = [str(path.relative_to(ROOT)) for path in ROOT.glob("components/alerts/*.yaml")]


@pytest.mark.parametrize("page", [*PAGES, *ALERTS, "docs/github-actions.yml", "operations/cli.py"])
def test_every_command_that_is_shown_is_one_that_hyperpod_takes(page: str) -> None:
    text = (ROOT / page).read_text()
    for line in commands(text.replace("${{ vars.STACK }}", "dev")):
        check(line)
    # The verbs' package is no command.
    assert re.findall(rf"\boperations (?:{'|'.join(command_line.command(cli.app).commands)})\b", text) == []


def test_the_readme_and_the_guides_show_commands() -> None:
    for page in ("README.md", "docs/slurm.md", "docs/kubernetes.md", "operations/cli.py"):
        assert list(commands((ROOT / page).read_text())), page


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", path.read_text()):
        name, _, anchor = target.partition("#")
        found = (path.parent / name).resolve() if name else path
        assert found.exists(), f"{page} links to {target}"
        assert not anchor or anchor in _anchors(found), f"{page} links to {target}"


def _anchors(page: Path) -> list[str]:
    """The headings of a page as GitHub links to them, and the anchors that the page sets itself."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    own = re.findall(r'<a id="(.+?)"></a>', text)
    return own + [re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_exists(page: str) -> None:
    roots = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"charts", "venv"}
    for name in re.findall(r"`([\w.-]+(?:/[\w.-]+)*/?)`", (ROOT / page).read_text()):
        if name.split("/")[0] in roots and "/" in name:
            assert (ROOT / name).exists(), f"{page} names {name}"


def test_a_key_is_written_as_the_configuration_takes_it() -> None:
    """A key is refused in another case; alerts name keys, too."""
    names = {
        one.name for key in keys(load((ROOT / "Pulumi.yaml").read_text())["config"]) for one in (key, *key.below())
    }
    right = {name.lower(): name for name in names if not name.islower()}
    assert right["storagegib"] == "storageGiB"
    for path in (*(ROOT / page for page in PAGES), *ROOT.glob("components/alerts/*.yaml")):
        # Not SageMaker's own names, which begin with a capital, nor variables of a shell.
        for word in re.findall(r"\b[a-z]\w*[A-Z]\w*", path.read_text()):
            assert right.get(word.lower(), word) == word, f"{path.relative_to(ROOT)} names {word}"


def test_contributing_names_every_table_of_facts() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    tables = [
        # Not venv/, build/ and benchmarks/: what benchmarks found is no fact that somebody adds.
        *(path for path in ROOT.glob("[!vb.]*/**/*.csv")),
        *ROOT.glob("components/alerts/*.yaml"),
        *ROOT.glob("operations/assumptions/*.yaml"),
    ]
    assert len(tables) > 10
    assert [name for path in tables if f"`{(name := str(path.relative_to(ROOT)))}`" not in text] == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


@pytest.mark.slow
def test_the_python_example_deploys_in_the_embedded_account() -> None:
    done = subprocess.run(
        [sys.executable, "docs/automation.py", "dev", "--rehearse"],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "dev is up for $11.37 an hour: arn:aws:sagemaker:us-west-2" in done.stdout


@pytest.mark.parametrize(("stack", "code", "said"), [("slurm-gpu", 1, "more than $50.00"), ("nope", 2, "no stack")])
def test_the_python_example_refuses_what_is_too_dear_and_explains_a_bad_stack(
    stack: str, code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["automation.py", stack, "--rehearse"])
    example = runpy.run_path(str(ROOT / "docs" / "automation.py"))
    assert example["main"]() == code
    assert said in "".join(capsys.readouterr())


def test_the_python_example_deploys_nothing_without_a_price(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["automation.py", "dev", "--rehearse"])
    group = json.dumps([{"name": "w", "instanceType": "ml.g7e.48xlarge", "count": 1}])
    chosen = targets.load("dev", [f"hyperpod:workers={group}"])
    monkeypatch.setattr(targets, "load", lambda _: chosen)
    monkeypatch.setattr(deploy, "run", None)
    assert runpy.run_path(str(ROOT / "docs" / "automation.py"))["main"]() == 3
    assert "is unknown: at least $1.03 an hour; price of 1 x ml.g7e.48xlarge unknown" in capsys.readouterr().out


def test_the_python_example_stops_where_the_preview_was_cancelled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = deploy.Report(stack="dev", command="preview", engine="", succeeded=False, cancelled=True)
    monkeypatch.setattr(deploy, "run", lambda *_: plan)
    monkeypatch.setattr(sys, "argv", ["automation.py", "dev", "--rehearse"])
    assert runpy.run_path(str(ROOT / "docs" / "automation.py"))["main"]() == 130
    assert capsys.readouterr().out == "not deployed: cancelled\n"


def test_the_python_example_takes_the_options_that_it_is_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engines, "find_cli", lambda: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["automation.py", "dev"])
    example = runpy.run_path(str(ROOT / "docs" / "automation.py"))
    assert example["main"]() == 3
    assert "add --install-cli" in capsys.readouterr().err
    monkeypatch.setattr(engines, "_install", _interrupted)
    monkeypatch.setattr(sys, "argv", ["automation.py", "dev", "--install-cli"])
    assert example["main"]() == 130


def _interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1)])
def test_the_python_example_takes_a_slow_network_for_a_failure(
    passed: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = SimpleNamespace(passed=passed, peak=20.0, threshold=40.0, reasons=["the peak is too low"])
    monkeypatch.setattr(benchmark, "run", lambda *_: result)
    monkeypatch.setattr(benchmark, "keep", lambda chosen, found, picture: found)
    example = runpy.run_path(str(ROOT / "docs" / "automation.py"))
    assert example["measure"](None) == code
    assert "20.0 GB/s of at least 40.0\nthe peak is too low" in capsys.readouterr().out


def test_the_example_of_a_directory_is_what_sssd_reads() -> None:
    """sssd.conf(5), "FILE FORMAT": a comment has a line of its own; behind a value it belongs to the value."""
    text = (ROOT / "docs/slurm-teams.md").read_text()
    lines = text.partition("    [sssd]\n")[2].partition("\n\n`")[0].splitlines()
    assert len(lines) > 12
    assert [line for line in lines if "=" in line and "#" in line.partition("=")[2]] == []


def test_nobody_is_told_to_replace_a_controller() -> None:
    """BatchReplaceClusterNodes, NodeIds (SageMaker API Reference): a controller cannot be among them."""
    told = re.compile(
        r"\breplace (the|a|your|its|this) (slurm )?(controller|head)\b"
        r"|\bhyperpod (node )?replace\b[^.|]{0,30}\bcontroller\b|\bcontroller\b[^.|]{0,30}\bhyperpod (node )?replace\b",
        re.IGNORECASE,
    )
    wrong = (
        "`hyperpod node replace` the controller",
        "replace the controller, or update-software",
        "hyperpod node replace controller",
    )
    assert all(told.search(text) for text in wrong)
    folders = ("docs", "operations", "components", "lifecycle", "jobs", "rehearsal")
    kinds = {".md", ".py", ".yaml", ".sh"}
    paths = [*ROOT.glob("*.*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in paths
        if path.suffix in kinds and path.is_file()
        for match in told.finditer(" ".join(path.read_text(encoding="utf-8").split()))
    ]
    assert len(paths) > 300
    assert not found, found
