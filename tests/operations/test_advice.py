"""What the project knows about failures: the world's error texts get the answer that is theirs, and none another's."""

import io
import re

import pytest
import typer

from components.common.documents import load
from components.config.keys import keys
from operations import cli
from operations.failures import Exit, advice
from tests.operations.aws import ended, run, run_json
from tests.rows import each
from tests.support import ROOT

# What code names where it is found; files other than operations/failures/__init__.py name them.
_BY_CODE = {"defect", "file", "stack-file"}
ERRORS = load((ROOT / "tests/operations/errors.yaml").read_text())
KNOWN = {one.name: one for one in advice.known()}
# What only this project says, or nobody has published the words of.
_OF_OUR_OWN = {
    "configuration", "deleted-behind", "hyperpod-chart", "instance-type", "lost-node", "proxy",
    "pulumi-cli", "pulumi-read", "training-plan-state", "writers",
}  # fmt: skip


@each({row["text"]: row for row in ERRORS})
def test_an_error_in_the_worlds_words_is_explained_by_its_own_cause(row: dict[str, str]) -> None:
    found = advice.matching(row["text"])
    assert (found.name if found else None) == row["answer"], f"{row['source']}: {row['text'][:80]}"


def test_a_cause_counts_before_its_consequence_wherever_they_stand() -> None:
    text = "OCI runtime create failed: exit status 1\nnvidia-container-cli: unsatisfied condition: cuda>=12.8"
    assert KNOWN["container-runtime"].follows
    assert advice.matching(text) == KNOWN["driver-too-old"]
    assert advice.matching(text.splitlines()[0]) == KNOWN["container-runtime"]


def test_every_failure_has_texts_of_the_world_with_their_sources() -> None:
    assert len({row["text"] for row in ERRORS}) == len(ERRORS) >= 150, "one text has two rows"
    assert all(row["source"] for row in ERRORS)
    with_pattern = {name for name, one in KNOWN.items() if one.pattern}
    assert with_pattern - {row["answer"] for row in ERRORS} == _OF_OUR_OWN


@each(KNOWN)
def test_a_message_on_the_page_gets_the_advice_that_stands_beside_it(one: advice.Advice) -> None:
    if one.pattern:
        assert advice.next_step(one.seen, "dev") == one.step.format(stack="dev")


# Other programs' words that resemble those of AWS, Kubernetes and Pulumi.
_OF_OTHERS = [
    "io.UnsupportedOperation: fileno",
    "tensorflow.python.framework.errors_impl.InvalidArgumentError: shapes [32] and [64]",
    "asyncio.exceptions.InvalidStateError: invalid state",
    "jsonschema.exceptions.ValidationError: 'lr' is a required property",
    "pydantic_core.ValidationError: 1 validation error for ModelConfig",
    "HTTPError: 502 Server Error: Bad Gateway for url: https://pypi.example.org/simple",
    "FileExistsError: [Errno 17] File exists: '/tmp/run' already exists",
    "ERROR: the target image is currently in use by a mount",
    "the launcher must delete the old socket first",
    "the service is misconfigured",
    "ssl.SSLError: TLS handshake timed out after 10 s",
    "ValueError: memory range overlaps with another tensor",
    "Terminated because the maximum number of epochs was reached",
    "error: RPC failed; HTTP 301 Moved Permanently",
    "ValueError: the model cannot fit in GPU memory of one device",
    "subprocess failed with exit status 5",
    "Error: No such option: --tensor-paralel-size",
    "ValueError: top_k must be less than or equal to 50",
    "updating the cache: file /tmp/x does not exist",
    "libmamba: failed to solve environment",
    "SMTP server: authentication required",
]


@pytest.mark.parametrize(
    "text",
    ["Loss is 2.31 at step 100", "job 82 is running", "everything is well", "Successfully pulled image", *_OF_OTHERS],
)
def test_what_is_no_known_failure_gets_no_advice(text: str) -> None:
    assert advice.matching(text) is None


def test_a_message_that_a_terminal_has_broken_is_explained_as_one_line() -> None:
    text = "cannot re-use a name that\n  is still in use"
    assert advice.matching(text) == KNOWN["helm-left-behind"]


# As the services' API references name them: IAM, S3 (its own bucket and another account's), RDS, Secrets Manager, EC2.
@pytest.mark.parametrize(
    "refusal",
    [
        "EntityAlreadyExists: Role with name hyperpod-dev-node already exists.",
        "BucketAlreadyOwnedByYou: Your previous request to create the named bucket succeeded and you already own it.",
        "BucketAlreadyExists: The requested bucket name is not available.",
        "DBInstanceAlreadyExists: DB instance already exists",
        "ResourceExistsException: The operation failed because the secret accounting already exists.",
        "InvalidGroup.Duplicate: The security group 'nodes' already exists for VPC 'vpc-1'",
        "ResourceInUse: Resource already in use: arn:aws:sagemaker:us-west-2:111122223333:cluster/dev",
    ],
)
def test_each_service_that_finds_a_name_taken_gets_the_advice_for_it(refusal: str) -> None:
    assert advice.matching(refusal) == KNOWN["name-taken"]


def test_a_cluster_that_is_being_tested_is_waited_for() -> None:
    # SageMaker Developer Guide, "Updating SageMaker HyperPod cluster configuration", says what the message states.
    refusal = "ValidationException: UpdateCluster is not possible: deep health checks are in progress on instance group"
    assert advice.matching(refusal) == KNOWN["cluster-busy"]


def test_a_failures_code_is_its_own_for_ever_and_has_a_section_and_an_end_of_a_message() -> None:
    assert len(KNOWN) == len(advice.known())
    assert len({one.code for one in KNOWN.values()}) == len(KNOWN)
    # What people have in their tickets and scripts: a code is never given to another failure.
    assert [KNOWN[name].code for name in ("failed", "writers", "capacity", "name-taken", "helm-left-behind")] == [
        "HP001", "HP010", "HP017", "HP029", "HP042",
    ]  # fmt: skip
    page = (ROOT / advice.PAGE).read_text()
    for one in KNOWN.values():
        assert re.fullmatch(r"HP\d{3,4}", one.code)
        assert f'\n### <a id="{one.code.lower()}"></a>{one.title}\n' in page
        assert one.more == f"More: hyperpod explain {one.code}, or docs/troubleshooting.md#{one.code.lower()}"


def test_every_failure_that_code_names_is_known() -> None:
    names = set(re.findall(r'name="([\w-]+)"', (ROOT / "operations" / "failures" / "__init__.py").read_text()))
    assert len(names) >= 12
    assert names <= KNOWN.keys()
    assert {name for name, one in KNOWN.items() if not one.pattern} == {"failed", "input", "undetermined", *_BY_CODE}


def test_advice_names_only_verbs_and_keys_that_there_are() -> None:
    verbs = typer.main.get_command(cli.app).commands.keys()  # type: ignore[attr-defined]
    known = {
        key.path for top in keys(load((ROOT / "Pulumi.yaml").read_text())["config"]) for key in (top, *top.below())
    }
    said = "\n".join(f"{one.why} {one.step}" for one in KNOWN.values())
    assert set(re.findall(r"\bhyperpod (?!explain into|on\b|goes\b)([a-z][\w-]+)", said)) <= verbs | {"explain"}
    assert set(re.findall(r"\bhyperpod:([a-zA-Z.]+\w)", said)) <= known


def test_a_pasted_error_is_explained_with_its_cause_its_next_step_and_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "We currently do not have sufficient capacity for the requested instance type(s). Please try again."
    code, out, _ = run("explain", text)
    assert (code, out.splitlines()[0][:5]) == (Exit.GOOD, "HP017")
    assert KNOWN["capacity"].why in " ".join(out.split())
    assert "Next: AWS has no such instances" in out
    assert "docs/troubleshooting.md#hp017" in out
    _, found = run_json("explain", text)
    assert (found["code"], found["page"]) == ("HP017", "docs/troubleshooting.md#hp017")
    monkeypatch.setattr("sys.stdin", io.StringIO("step 10\nstep 11\nRuntimeError: No CUDA GPUs are available\n"))
    assert run("explain", "-")[1].startswith("HP098")
    assert run("explain", "OOMKilled")[1].startswith("HP063")
    assert run("explain", "1 problem\nMore: hyperpod explain HP016, or docs/x")[1].startswith("HP016")


def test_an_error_that_only_its_program_is_known_of_gets_the_closest_known_ones() -> None:
    text = "slurmctld: error: Node ip-10-1-1-1 has invalid reservation"
    assert run("explain", text)[1].count("Close to it, by its words only: HP") >= 1
    _, found = run_json("explain", text)
    assert (found["code"], found["reading"]["speaker"]) == ("", "slurmctld")
    assert KNOWN["slurm-reservation"].code in found["closest"]
    assert run_json("explain", KNOWN["capacity"].seen)[1]["closest"] == []


def test_an_error_that_nobody_knows_gets_the_closest_known_ones_and_says_how_they_were_found() -> None:
    _, err = ended(Exit.CANNOT_KNOW, "explain", "the overlay for whiteouts broke, and aufs")
    assert "The closest known ones, by their words only:" in err
    assert KNOWN["container-start"].code in err


def test_an_error_that_nobody_knows_is_sent_to_the_three_logs() -> None:
    code, out, err = run("explain", "the flux capacitor has no flux")
    assert (code, out) == (Exit.CANNOT_KNOW, "")
    assert "no failure that the project knows" in err
    assert "by their words only" not in err
    for log in ("/aws/sagemaker/Clusters/", "journalctl -u slurmctld", "kubectl logs POD --previous"):
        assert log in err
