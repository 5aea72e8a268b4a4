"""Wrong words are answered with what was meant, in one style, and a stack is named wherever it is easiest."""

import ast
import io
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from botocore.exceptions import NoCredentialsError
from rich.console import Console

import hyperpod
import operations
from operations.aws import Aws
from operations.failures import Exit, Failure, bad_input
from operations.terminal import command_line, console
from operations.terminal.output_options import OPTIONS
from tests.operations.aws import StubbedAws, cluster, ended, run, verb_of
from tests.rows import each
from tests.support import ROOT

# A command line, and what its answer names: the word that is wrong, and what would be right.
WRONG = (
    ("deply dev", "deply", "'deploy'"),
    ("cost", "'STACK'", "dev, eks-gpu"),
    ("cost dev eks-gpu extra", "extra", "cost --help"),
    ("cost dev --jsno", "--jsno", "--json"),
    ("cost dev --config", "requires an argument", "hyperpod --help"),
    ("cost dev --config size", '"size"', "--config hyperpod:size=large"),
    ("cost dev --config hyperpod:siez=large", "hyperpod:siez", "did you mean size?"),
    ("cost dev --config fsx.storageGiB=2400", "fsx.storageGiB", "--path 'hyperpod:fsx.storageGiB' VALUE"),
    ("cost dev --config hyperpod:size=huge", "'huge'", "'small', 'medium' or 'large'"),
    ("cost dev -o xml", "'xml'", "'json', 'yaml', 'wide'"),
    ("cost dev -o", "'-o'", "hyperpod --help"),
    ("node list dev --watchh", "--watchh", "node list --help"),
    ("watch dev --timeout -1", "--timeout", "watch --help"),
    ("node exec dev", "'NODE'", "node exec --help"),
    ("node exec dev controller", "'CMD'", "node exec --help"),
    ("node exec dev controller sinfo --nosuch", "--nosuch", "node exec --help"),
    ("node replace dev", "'NODE'", "node replace --help"),
    ("node replace workers-2", "'NODE'", "node replace --help"),
    ("node remove dev", "'NODE...'", "node remove --help"),
    ("scale dev workers", "'N'", "scale --help"),
    ("scale dev workers many", "'N': Input should be a valid integer", "scale --help"),
    ("scale dev nosuch 3", '"nosuch"', "groups here: workers"),
    ("scale dev controller 2", '"controller"', "groups here: workers"),
    ("deploy dev --rehearze", "--rehearze", "--rehearse"),
    ("policy dev --account 12", "12 is no AWS account", "12 digits"),
    ("job", "Missing command", "job --help"),
    ("job nosuch", "nosuch", "job --help"),
    ("job print dev nanogpt -n red", "--namespace is for EKS", "--user"),
    ("job run eks-gpu nanogpt --user ann", "--user is for Slurm", "--namespace"),
    ("run dev nosuch.py", "nosuch.py: No such file", "More:"),
    ("run dev docs", "docs: Is a directory", "docs/data.md"),
    ("job run eks-gpu", "'JOB'", "job run --help"),
    ("job run eks-gpu nosuch", '"nosuch"', "device-check, nccl-tests"),
    ("job print eks-gpu nanogpt --nodes 99", "99 nodes", "ask for 1 to 2"),
    ("kubeconfig dev", "Slurm stack", "hyperpod node connect dev"),
    ("apply eks-gpu --part slurm-config", "has no Slurm", "hyperpod:slurm"),
    ("node run-scripts eks-gpu", "has no Slurm", "update-software"),
    ("node deep-check dev --check Stress", "'--check'", "InstanceStress"),
    ("apply dev --part governance", "task governance", "hyperpod:charts.queues"),
    ("benchmark dev --nodes one", "'--nodes' / '-N': Input should be a valid integer", "benchmark --help"),
    ("node update-software dev --batch 0", "greater than or equal to 1", "node update-software --help"),
    ("assumptions --id nosuch", '"nosuch"', "hyperpod assumptions"),
    ("job image dev", "for jobs on EKS", "docs/slurm.md"),
    ("rehearse dve", '"dve"', "did you mean dev?"),
    ("rehearse nods", '"nods"', "stacks here: dev"),
    ("rehearse --then", "'--then'", "hyperpod --help"),
    ("rehearse dev --engine pulumy", "'pulumy'", "'embedded', 'pulumi'"),
    ("rehearse nodes dev --slurm 1", "'1'", "'24.11', '26.05'"),
    ("rehearse eks dev", "runs Slurm", "hyperpod rehearse nodes dev"),
    ("rehearse drill dev --only nosuch", "nosuch", "there are capacity, controller-capacity, quota"),
    ("job checkpoints dev --parameters many", '"many"', "70B"),
    ("job checkpoints dev --parameters 0B", '"0B"', "70B"),
    ("types --accelerator tpu", "'tpu'", "types --help"),
    ("explain HP999", "HP999", "docs/troubleshooting.md"),
    ("--nosuch", "--nosuch", "hyperpod --help"),
)


@each(WRONG)
def test_a_wrong_command_line_is_2_and_is_told_what_was_meant(words: str, wrong: str, right: str) -> None:
    code, out, err = run(*words.split())
    assert (code, out) == (Exit.BAD_INPUT, "")
    assert wrong in err.splitlines()[0] or wrong in err.splitlines()[1]
    assert right in err
    assert err.splitlines()[-1].startswith("More: hyperpod explain HP0")


@each(
    (
        ("cost", "cost eks-gpu"),
        ("node connect workers-2", "node connect eks-gpu workers-2"),
        ("node exec controller -- echo dev", "node exec eks-gpu controller -- echo dev"),
        # Another stack, and the list of all assumptions.
        ("cost dev", "cost dev"),
        ("assumptions", "assumptions"),
    ),
)
def test_a_variable_names_the_stack_where_no_word_does(
    words: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def params(line: str) -> tuple[str, dict[str, Any]]:
        found, rest = verb_of(line.split())
        return found.name, found.make_context("", rest).params

    monkeypatch.setenv("HYPERPOD_STACK", "eks-gpu")
    assert params(words) == params(expected)


def test_the_result_comes_as_json_or_yaml_wherever_that_is_asked() -> None:
    _, plain, _ = run("cost", "dev", "--json")
    _, asked, _ = run("-o", "json", "cost", "dev")
    _, other, _ = run("cost", "dev", "--output=yaml")
    assert json.loads(asked) == json.loads(plain) == yaml.safe_load(other)
    assert not other.startswith("{")
    run("cost", "dev")
    assert OPTIONS.output is None, "the next command line starts anew"


def test_notes_are_silent_and_calls_are_named_on_demand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoken: list[tuple[bool, bool]] = []

    def load(*_: object) -> None:
        spoken.append((OPTIONS.quiet, OPTIONS.verbose))
        raise Failure("not today")

    monkeypatch.setattr("operations.target.load", load)
    for words in ("-q cost dev", "node exec dev c -v -- grep -q", "cost dev"):
        run(*words.split())
    assert spoken == [(True, False), (False, True), (False, False)]
    OPTIONS.quiet = True
    console.note("working on it")
    assert capsys.readouterr().err == ""
    OPTIONS.begin([])


def test_the_command_works_on_the_project_of_the_current_folder(tmp_path: Path) -> None:
    assert hyperpod.project_folder(ROOT / "docs") == ROOT
    assert hyperpod.project_folder(tmp_path) is None
    (tmp_path / "Pulumi.yaml").touch()
    for folder in ("docs", "operations"):
        (tmp_path / folder).mkdir()
    (tmp_path / "operations" / "cli.py").write_text("print('this one')\nraise SystemExit(7)\n")
    (tmp_path / "hyperpod.py").write_text("from operations import cli\n")
    command = [sys.executable, "-c", "import hyperpod; hyperpod.main()"]
    ran = subprocess.run(command, cwd=tmp_path / "docs", capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (7, "this one\n")


@pytest.mark.parametrize("words", ["rehearse --help", "job --help", "node --help", "download --help"])
def test_a_list_of_commands_says_whole_sentences(words: str) -> None:
    listed = run(*words.split())[1].partition("Commands:\n")[2].partition("\n\n")[0]
    assert [line for line in listed.splitlines() if line.endswith("...")] == []


def test_who_has_no_credentials_yet_gets_policies_by_the_accounts_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: Aws) -> str:
        raise NoCredentialsError

    monkeypatch.setattr(Aws, "account_id", property(nobody))
    code, out, err = run("policy", "dev")
    assert (code, out) == (Exit.CANNOT_KNOW, "")
    assert "Next: name the account: hyperpod policy dev --account 123456789012\n" in err
    assert "Rehearsing" not in err


def test_its_version_is_the_packages() -> None:
    code, out, _ = run("--version")
    assert (code, out) == (0, f"hyperpod {operations.VERSION}\n")


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt(), Exit.CANCELLED, "Cancelled.\n"),
        (FileNotFoundError(2, "No usable temporary directory found"), Exit.FAILED, "No usable temporary directory"),
        (ModuleNotFoundError(name="typer"), Exit.CANNOT_KNOW, "typer is missing in "),
    ],
)
@pytest.mark.parametrize("start", [hyperpod.run, lambda: runpy.run_module("operations", run_name="__main__")])
def test_a_command_that_cannot_even_be_loaded_ends_without_a_traceback(
    start: Callable[[], Any],
    raised: BaseException,
    code: Exit,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Broken(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise raised

    monkeypatch.setitem(sys.modules, "operations.cli", Broken("operations.cli"))
    try:
        ended: Any = start()
    except SystemExit as left:
        ended = left.code
    assert ended == code
    assert capsys.readouterr().err.startswith(said)


def test_nodes_are_asked_for_again_until_ctrl_c(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("operations.commands.nodes.time.sleep", nap)
    for _ in range(2):
        aws.answer("sagemaker", "describe_cluster", cluster("Creating"))
        aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": []})
    out, _ = ended(Exit.CANCELLED, "node", "list", "dev", "--watch", "--no-state")
    assert naps == [15, 15]
    assert out.count("hyperpod-dev: Creating, 0 nodes") == 2


def test_prose_is_wrapped_between_words_in_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "  everything else: components/catalogue/prices.csv, figures of 2026-03-01 to 2026-09-28"
    for terminal, expected in (
        (
            True,
            "  everything else:\n    components/catalogue/prices.csv,\n    figures of 2026-03-01 to\n    2026-09-28\n",
        ),
        (False, f"{line}\n"),
    ):
        said = io.StringIO()
        drawn = Console(file=said, force_terminal=terminal, color_system=None, width=36, soft_wrap=True)
        monkeypatch.setattr(console, "out", lambda drawn=drawn: drawn)
        console.prose(line)
        assert said.getvalue() == expected


# What people hear of a verb that ends or goes on; a command in it, up to the first word that is no argument.
_SAID = {"Failure", "bad_input", "cannot_know", "note", "prose", "remark", "complain"}
_COMMAND = re.compile(r"(?:hyperpod|aws|kubectl|pulumi)(?: [a-z][a-z-]+){1,2}(?: (?:VALUE|[A-Z]+|--[a-z-]+))*(?![\w-])")


def _said_in(path: Path, by: Collection[str] = _SAID) -> Iterator[str]:
    """The words that a module gives to people, with VALUE for what is known only when it runs."""
    for call in (one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Call)):
        if (getattr(call.func, "attr", "") or getattr(call.func, "id", "")) in by:
            for text in call.args:
                parts = text.values if isinstance(text, ast.JoinedStr) else [text]
                if isinstance(text, ast.JoinedStr | ast.Constant):
                    yield "".join(str(one.value) if isinstance(one, ast.Constant) else "VALUE" for one in parts)


def test_no_command_in_what_people_are_told_is_wrapped() -> None:
    found = 0
    for path in (path for room in ("operations", "rehearsal") for path in (ROOT / room).rglob("*.py")):
        for text in _said_in(path):
            for start in ("", "Next: "):
                lines = command_line.broken(start + text, 40)
                for copied in _COMMAND.findall(text):
                    assert any(copied in line for line in lines), (path.name, copied, lines)
                    found += 1
    assert found > 100


def test_a_sentence_is_wrapped_by_words_and_not_by_the_terminal() -> None:
    rooms = [*(ROOT / "operations" / "commands").glob("*.py")]
    said = [(path.name, text) for path in rooms for text in _said_in(path, {"say"})]
    assert len(said) > 20
    copied = ("  ", "# ", "aws ", "pulumi ", "Next: ")
    assert [(name, text) for name, text in said if len(text.split()) > 6 and not text.startswith(copied)] == []


def test_what_is_wrong_is_said_in_whole_words_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    drawn = Console(file=said, force_terminal=True, color_system=None, width=40, soft_wrap=True)
    monkeypatch.setattr(command_line, "Console", lambda **_: drawn)
    command_line.complain(
        bad_input("1 problem:\n  hyperpod:size: unknown key; known here: size", "name one of dev, eks-gpu")
    )
    assert said.getvalue().splitlines() == [
        "1 problem:",
        "  hyperpod:size: unknown key; known",
        "    here: size",
        "Next: name one of dev, eks-gpu",
        "More: hyperpod explain HP002, or",
        "  docs/troubleshooting.md#hp002",
    ]
