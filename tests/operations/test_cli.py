"""The command as a whole: its help, its exit codes, and that no known trouble ends in a traceback."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore import exceptions
from botocore.parsers import ResponseParserError
from pulumi import automation

from operations.aws import Aws
from operations.failures import Exit, Failure, explain
from operations.terminal import console
from tests.operations.aws import RefusingAws, ended, ended_json, run, run_json
from tests.operations.test_grammar import VERBS as EVERY_VERB
from tests.operations.test_grammar import WITHOUT_STACK
from tests.support import ROOT

# How each verb that asks AWS is called.
ASKING = {
    "quotas": "dev",
    "capacity": "dev",
    "errors": "dev",
    "status": "dev",
    "watch": "dev",
    "node list": "dev",
    "node connect": "dev",
    "node exec": "dev controller -- true",
    "node ssh-config": "dev",
    "validate": "dev",
    "benchmark": "dev",
    "diagnose": "dev",
    "node health": "dev",
    "node deep-check": "dev --yes",
    "node find-slow": "dev",
    "node users": "dev",
    "usage": "dev",
    "apply": "dev",
    "node replace": "dev workers-1 --yes",
    "node reboot": "dev workers-1 --yes",
    "node remove": "dev workers-1 --yes",
    "node update-software": "dev --yes",
    "node run-scripts": "dev --yes",
    "run": f"dev {__file__}",
    "cost": "dev --live",
    "kubeconfig": "eks-gpu",
    "job image": "eks-gpu",
    "job pull": "eks-gpu IMAGE",
    "job list": "eks-gpu",
    "job logs": "eks-gpu nanogpt",
    "job cancel": "eks-gpu nanogpt --yes",
    "job run": "eks-gpu nanogpt",
    "assumptions": "dev",
}
# They go on without what cannot be asked, or need no cluster.
LENIENT = {"capacity", "quotas", "errors", "status", "cost"}
OFFLINE = {"deploy", "preview", "destroy", "scale", "policy", "job print", "job checkpoints"}
# Without a stack, or of none that is ready: tests of their own have their troubles.
ELSEWHERE = {"dashboards", *WITHOUT_STACK}
VERBS = sorted(name for name in EVERY_VERB if not name.startswith("rehearse"))


def words_of(verb: str) -> list[str]:
    return [*verb.split(), *ASKING[verb].split()]


def test_every_verb_is_tried_with_every_trouble() -> None:
    assert {*ASKING, *OFFLINE, *ELSEWHERE} == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example_and_fits_into_80_columns_and_into_40(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = ended(Exit.GOOD, *verb.split(), "--help")
    assert f"hyperpod {verb}" in out.split("Options:")[0].split("\n", 1)[1]
    assert max(map(len, out.splitlines())) <= 80
    assert "\x08" not in out
    monkeypatch.setenv("COLUMNS", "40")
    narrow = run(*verb.split(), "--help")[1].splitlines()
    # Commands to copy have their length, and so have options with their choices.
    assert [line for line in narrow if len(line) > 40 and not line.startswith(("    ", "  --"))] == []


def test_help_lists_every_verb_and_the_exit_codes() -> None:
    code, out, _ = run("--help")
    assert code == Exit.GOOD
    assert all(f"\n  {verb.split()[0]} " in out for verb in VERBS)
    listed = out.split("The first day:\n")[1]
    assert [line.split()[0] for line in listed.splitlines()[:5]] == ["init", "deploy", "status", "destroy", "rehearse"]
    assert "..." not in listed, "a verb's first sentence does not fit"
    assert "0 success; 1 the operation failed" in out


DENIED = "AccessDeniedException"
# An error of AWS's, the exit code, and a word of what is said.
ERRORS = {
    DENIED: (Exit.CANNOT_KNOW, "denied"),
    "UnauthorizedOperation": (Exit.CANNOT_KNOW, "denied"),
    "ThrottlingException": (Exit.CANNOT_KNOW, "throttle"),
    "ExpiredToken": (Exit.CANNOT_KNOW, ""),
    "UnrecognizedClientException": (Exit.CANNOT_KNOW, ""),
    "SomethingNobodyHeardOf": (Exit.FAILED, "SomethingNobodyHeardOf"),
}


@pytest.mark.parametrize(
    ("verb", "code"), [*((verb, DENIED) for verb in sorted(ASKING)), *(("status", code) for code in ERRORS)]
)
def test_no_error_of_aws_is_a_traceback_and_each_has_its_exit_code(
    refusing: Callable[..., RefusingAws], verb: str, code: str, on: Callable[[Aws], None], plugin: Path
) -> None:
    on(refusing(code))  # plugin's PATH has no Pulumi CLI
    exit_code, said = ERRORS[code]
    ended, out, err = run(*words_of(verb))
    # These go on without what cannot be asked, and say that they do not know.
    lenient = verb in ("capacity", "quotas", "errors")
    assert ended == (Exit.CANNOT_KNOW if lenient else exit_code)
    assert said.lower() in (out + err).lower()
    assert lenient or "Next: " in err or exit_code is Exit.FAILED


@pytest.mark.parametrize(
    "verb", sorted(verb for verb, words in ASKING.items() if words.startswith("dev") and verb not in LENIENT)
)
def test_a_missing_cluster_is_bad_input_with_the_next_step(
    refusing: Callable[..., RefusingAws], verb: str, on: Callable[[Aws], None], plugin: Path
) -> None:
    on(refusing("ResourceNotFound"))
    ended, _, err = run(*words_of(verb))
    assert ended == Exit.BAD_INPUT
    assert "no HyperPod cluster hyperpod-dev in us-west-2" in err
    assert "hyperpod deploy dev" in err


@pytest.mark.parametrize("verb", sorted(set(VERBS) - WITHOUT_STACK))
def test_an_unknown_stack_is_bad_input_and_a_similar_name_is_suggested(verb: str) -> None:
    others = {
        "scale": "workers 3",
        "job print": "nanogpt",
        "job pull": "IMAGE",
        "job checkpoints": "--parameters 8B",
        **ASKING,
    }.get(verb, "dev")
    words = others.replace("eks-gpu ", "").removeprefix("dev").removeprefix("eks-gpu")
    _, err = ended(Exit.BAD_INPUT, *verb.split(), "dve", *words.split())
    assert "Pulumi.dve.yaml" in err
    assert "did you mean dev?" in err


def test_failures_are_json_too(refusing: Callable[..., RefusingAws], on: Callable[[Aws], None]) -> None:
    on(refusing("AccessDeniedException"))
    document = ended_json(Exit.CANNOT_KNOW, "node", "list", "dev")
    assert document["exit_code"] == Exit.CANNOT_KNOW
    assert "permission denied" in document["error"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nosuch",), "No such command"),
        (("quotas",), "'STACK'"),
        (("node", "list", "dev", "--nosuch"), "No such option"),
        (("errors", "dev", "--hours", "much"), "should be a valid number"),
        (("deploy", "dev", "--config", "x=y"), "--rehearse"),
    ],
)
def test_a_command_line_that_cannot_be_is_json_too(words: tuple[str, ...], said: str) -> None:
    code, document = run_json(*words)
    assert (code, document["exit_code"]) == (Exit.BAD_INPUT, Exit.BAD_INPUT)
    assert said in document["error"]


def test_ctrl_c_and_ctrl_d_at_a_question_are_no_traceback_and_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    for raised in (KeyboardInterrupt, EOFError):

        def end(*_: Any, raised: type[BaseException] = raised) -> None:
            raise raised

        monkeypatch.setattr("operations.commands.costs.bill", end)
        found, out, err = run("cost", "dev")
        assert (found, out, err.strip()) == (Exit.CANCELLED, "", "Cancelled.")


def test_a_python_without_the_packages_names_the_virtual_environment() -> None:
    # -I -S: no packages of anybody's, as the system's own Python has none.
    script = (
        f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); runpy.run_module('operations', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-IS", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (Exit.CANNOT_KNOW, "")
    assert len(done.stderr.splitlines()) == 1
    assert ". venv/bin/activate" in done.stderr


def test_json_of_the_remote_command_is_not_ours(
    refusing: Callable[..., RefusingAws], on: Callable[[Aws], None]
) -> None:
    on(refusing("AccessDeniedException"))
    code, out, _ = run("node", "exec", "dev", "controller", "--", "squeue", "--json")
    assert (code, out) == (Exit.CANNOT_KNOW, "")


@pytest.mark.parametrize(
    "words",
    [
        ("node", "list", "dev"),
        ("node", "exec", "dev", "controller", "--", "true"),
    ],
)
def test_hints_name_the_stack_so_that_they_can_be_copied(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise Failure("no", "hyperpod errors STACK")

    monkeypatch.setattr("operations.target.load", refuse)
    assert "hyperpod errors dev" in run(*words)[2]
    monkeypatch.setenv("HYPERPOD_STACK", "slurm-gpu")
    assert "hyperpod errors slurm-gpu" in run("node", "exec", "controller", "--", "true")[2]


def _environment(**more: str) -> dict[str, str]:
    """A machine without any credentials or CLI."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "PULUMI_"))}
    nowhere = "/nowhere"
    return {
        **kept,
        "HOME": nowhere,
        "PATH": "/usr/bin:/bin",
        "AWS_CONFIG_FILE": nowhere,
        "AWS_SHARED_CREDENTIALS_FILE": nowhere,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
        **more,
    }


def _really(*words: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "operations", *words],
        cwd=ROOT, env=_environment(**environment), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        (("node", "list", "dev"), {}, "no usable AWS credentials"),
        (
            ("node", "list", "dev"),
            {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
            "AWS cannot be reached",
        ),
        (("deploy", "dev", "--yes"), {}, "there is no Pulumi CLI on this machine"),
    ],
    ids=["no credentials", "no network", "no CLI"],
)
def test_a_bare_machine_gets_one_clear_message(words: tuple[str, ...], environment: dict[str, str], said: str) -> None:
    code, text = _really(*words, **environment)
    assert code == Exit.CANNOT_KNOW
    assert said in text
    assert "Next: " in text


@pytest.mark.parametrize(
    "words", [("deploy", "dev"), ("preview", "dev"), ("destroy", "dev"), ("scale", "dev", "workers", "3")]
)
def test_without_a_cli_no_verb_goes_on(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("HOME", "/nowhere")
    more = () if words[0] == "preview" else ("--yes",)
    code, out, err = run(*words, *more)
    assert (code, out) == (Exit.CANNOT_KNOW, "")
    assert "--install-cli" in err


PAGE = "<!DOCTYPE html><html><head><title>\nNo</title></head><body><p>not for you</p></body></html>"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (exceptions.NoCredentialsError(), Exit.CANNOT_KNOW, "credentials"),
        (exceptions.ProfileNotFound(profile="nobody"), Exit.CANNOT_KNOW, "nobody"),
        (exceptions.NoRegionError(), Exit.BAD_INPUT, "region"),
        (exceptions.EndpointConnectionError(endpoint_url="https://x"), Exit.CANNOT_KNOW, "reached"),
        (exceptions.ConnectTimeoutError(endpoint_url="https://x"), Exit.CANNOT_KNOW, "reached"),
        (exceptions.ParamValidationError(report="bad"), Exit.FAILED, "bad"),
        (automation.InvalidVersionError("too old"), Exit.CANNOT_KNOW, "too old"),
        # What botocore makes of a proxy's page, by the service's protocol.
        (ResponseParserError(f"invalid XML received:\n{PAGE.encode()!r}"), Exit.CANNOT_KNOW, 'AWS answered: "No"'),
        (exceptions.ClientError({"Error": {"Code": "403", "Message": PAGE}}, "X"), Exit.CANNOT_KNOW, 'answered: "No"'),
    ],
)
def test_errors_of_libraries_are_explained(error: Exception, code: Exit, said: str) -> None:
    failure = explain(error)
    assert failure is not None
    assert (failure.code, said in failure.message) == (code, True)
    assert "<" not in failure.message


@pytest.mark.parametrize(
    ("stderr", "code", "said"),
    [
        ("error: no stack named 'dev' found", Exit.BAD_INPUT, "never been deployed"),
        ("error: the stack is currently locked by 1 lock(s)", Exit.FAILED, "another update"),
        ("error: PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions", 3, "no backend for"),
        ("error: passphrase must be set with PULUMI_CONFIG_PASSPHRASE", 3, "secrets cannot be read"),
        ("error: dial tcp: lookup api.pulumi.com: no such host", 3, "cannot reach its backend"),
        ("error: something else", Exit.FAILED, "something else"),
        (
            'error: read ".pulumi/meta.yaml": blob (code=Unknown): operation error S3: GetObject, get identity: get '
            "credentials: failed to refresh cached credentials, no EC2 IMDS role found, dial tcp 169.254.169.254:80: "
            "i/o timeout",
            3,
            "backend refuses",
        ),
        ("error: NoCredentialProviders: no valid providers in chain", 3, "backend refuses"),
        ("error: operation error S3: ListObjectsV2, api error ExpiredToken: The token has expired", 3, "expired"),
        ("error: api error AccessDenied: Access Denied", 3, "Access Denied"),
        ("error: api error NoSuchBucket: The specified bucket does not exist", 3, "does not exist"),
    ],
)
def test_what_the_cli_says_is_explained(stderr: str, code: int, said: str) -> None:
    from pulumi.automation.errors import create_command_error

    failure = explain(create_command_error(automation.CommandResult(stdout="", stderr=stderr, code=255)), "dev")
    assert failure is not None
    assert failure.code == code
    assert said in failure.message
    assert "STACK" not in failure.hint.replace("HYPERPOD_STACK", "")
    assert code != Exit.CANNOT_KNOW or failure.hint


def test_nobody_is_asked_where_nobody_can_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(Failure, match="no terminal to answer") as refused:
        console.confirm("Delete?", yes=False)
    assert refused.value.code == Exit.BAD_INPUT
    console.confirm("Delete?", yes=True)
