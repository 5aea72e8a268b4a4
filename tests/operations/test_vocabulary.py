"""The codes that programs define themselves, found in a text and explained where no known failure says more."""

import re
from typing import NamedTuple

import pytest
import typer

from components.common.documents import load
from operations import cli
from operations.failures import advice, reading, vocabulary
from tests.operations.aws import run, run_json
from tests.rows import each


class Row(NamedTuple):
    """A text with a code, its program, and words of the meaning and of the next step."""

    text: str
    code: str
    program: str
    means: str
    step: str


ROWS = [
    # botocore: by the operation, by the service's name in a text of Java or Go, and by a name that one service has.
    Row(
        "An error occurred (InvalidActivation) when calling the RegisterManagedInstance operation: no",
        "InvalidActivation", "Amazon SSM", "ActivationCode don't match", "`aws ssm describe-activations`",
    ),
    Row(
        "(Service: AmazonSSM; Status Code: 400; Error Code: DocumentLimitExceeded; Request ID: 1)",
        "DocumentLimitExceeded", "Amazon SSM", "500 active SSM documents", "--service-code ssm",
    ),
    Row("operation error EFS: CreateMountTarget, api error MountTargetConflict: no",
        "MountTargetConflict", "EFS", "existing mount targets", "repeat `aws efs create-mount-target`"),
    Row("KeyUnavailableException", "KeyUnavailableException", "KMS", "not available", "repeat the call in a minute"),
    Row("the issues of EKS node group workers: AutoScalingGroupNotFound", "AutoScalingGroupNotFound", "Amazon EKS",
        "recreate an Auto Scaling group", "shows what exists"),
    Row("NotServiceResourceError", "NotServiceResourceError", "Amazon FSx", "tagging operation", "hyperpod errors"),
    # Tables: a whole code, and a form with what it names.
    Row("api error InvalidNetworkInterface.InUse: x", "InvalidNetworkInterface.InUse", "Amazon EC2", "is attached",
        "describe-network-interfaces"),
    Row("api error InvalidTransitGatewayID.NotFound: x", "InvalidTransitGatewayID.NotFound", "Amazon EC2",
        "of the call: Transit Gateway.", "get-caller-identity"),
    Row("AWS::X::Y failed, HandlerErrorCode: InvalidCredentials", "InvalidCredentials",
        "CloudFormation's resource handlers", "does not accept", "log in again"),
    # Numbers that stand for names, and Python's own words for what no table has.
    Row("thing.sock: [Errno 107] x", "ENOTCONN", "Linux", "Transport endpoint", "umount"),
    Row("LustreError: rc = -116", "ESTALE", "Linux", "Stale file handle", "umount"),
    Row("the program ended with exit code 135", "SIGBUS", "Linux", "/dev/shm", "emptyDir"),
    Row("exitcode: -4 (pid: 9)", "SIGILL", "Linux", "another processor", "lscpu"),
    Row("server says: HTTP 502", "HTTP 502", "HTTP", "Bad Gateway", "health check"),
    Row("ENOTUNIQ", "ENOTUNIQ", "Linux", "Name not unique", ""),
    Row("signal 31", "SIGSYS", "Linux", "exit code 159", ""),
    Row("status code: 451", "HTTP 451", "HTTP", "legal", ""),
    Row("rpc error: code = FailedPrecondition desc = x", "FailedPrecondition", "gRPC", "in the state", "detach"),
    # Sentences, which say more than the code beside them.
    Row("Error: Error acquiring the state lock", "acquiring the state lock", "Terraform", "left it",
        "terraform force-unlock ID"),
    Row("could not create volume in EC2: InvalidParameterCombination: The parameter iops must be specified for io1",
        "parameter iops", "a controller in the cluster", "gp3 takes", "delete and make it again"),
    Row("api error ValidationError: Stack:arn is in ROLLBACK_COMPLETE state and can not be updated.",
        "is in ROLLBACK_COMPLETE state and can not be updated", "CloudFormation", "only delete it", "delete-stack"),
    Row("FailedKillPod", "FailedKillPod", "Kubernetes", "hangs in the kernel", "wchan"),
    Row("Error from server (Gone): the provided continue parameter is too old", "Gone", "the Kubernetes API",
        "has forgotten", "lists anew"),
    # Machines and accelerators: statuses of CUDA's libraries, Neuron's compiler and runtime, EFA's provider.
    Row("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED", "CUDNN_STATUS_NOT_SUPPORTED", "CUDA", "no kernel", "contiguous"),
    Row("CUDA error: too many resources requested for launch", "too many resources requested for launch", "CUDA",
        "than this GPU has", "smaller block"),
    Row("[NCC_EVRF007] The number of instructions exceeds", "NCC_EVRF007", "Neuron", "too large", "parallelism"),
    Row("status NRT_EXEC_HW_ERR_HBM_UE", "NRT_EXEC_HW_ERR_HBM_UE", "Neuron", "cannot be repaired", "node replace"),
    Row("Error: 4126 (Unresponsive receiver (reachable by EFA device but handshake failed))", "handshake failed", "EFA",
        "does not answer", "fi_info"),
    # What fails behind a status counts before it.
    Row("StatusCode: 400, api error InvalidVpcID.NotFound", "InvalidVpcID.NotFound", "Amazon EC2", "does not exist",
        "describe-vpcs"),
]  # fmt: skip


@each({row.text: (row,) for row in ROWS})
def test_a_code_means_what_its_program_says(row: Row) -> None:
    found = vocabulary.find(row.text)
    assert found
    assert (found.name, found.program) == (row.code, row.program)
    assert row.means in found.means
    assert row.step in found.step


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA error: the launch timed out",
        "An error occurred (ValidationException) when calling the CreateCluster operation: x",
        "An error occurred (ResourceInUseException) when calling the CreateThing operation: x",
        "exit code 99",
        "rank 3 Unavailable",
        "[Errno 9999] x",
        "Starting the run: the old node Rebooted in 3 s and is Ready",
        "Loss is 2.31 at step 100, everything is well",
    ],
)
def test_a_name_of_every_service_or_of_nobody_is_no_code(text: str) -> None:
    assert vocabulary.find(text) is None


def test_no_code_hides_another_of_its_table_and_every_answer_names_verbs_that_there_are() -> None:
    verbs = typer.main.get_command(cli.app).commands.keys()  # type: ignore[attr-defined]
    for table in vocabulary.tables():
        assert not any(re.search(one, "", re.IGNORECASE) for one in table.sentences)
        for code, (means, step) in (table.codes | table.sentences).items():
            assert set(re.findall(r"\bhyperpod (?!explain)([a-z][\w-]+)", step)) <= verbs
            assert set(re.findall(r"\{(\w+)\}", means)) <= re.compile(code).groupindex.keys()
            assert "STACK" in step.format(stack="STACK") or "{stack}" not in step
            assert means.endswith(".")
            assert not step.endswith(".")
        for code in table.codes:
            if re.fullmatch(r"[\w|. ]+", code):
                assert all(table.term(one.replace("\\", "")) for one in code.split("|")), code


def test_every_step_of_aws_takes_what_the_text_and_the_service_have() -> None:
    steps = load((reading.FOLDER / "aws_steps.yaml").read_text())
    assert {word for step in steps.values() for word in re.findall(r"\{(\w+)\}", step)} == {
        "list", "call", "service", "stack",
    }  # fmt: skip


def test_a_general_failure_has_the_meaning_of_the_texts_own_code() -> None:
    text = "InvalidGroup.Duplicate: The security group 'nodes' already exists for VPC 'vpc-1'"
    general = advice.matching(text)
    assert general
    assert general.general
    told = run("explain", text)[1]
    assert told.startswith(f"{general.code}: InvalidGroup.Duplicate (Amazon EC2)")
    assert "describe-security-groups" in told
    assert advice.next_step(text, "dev") != general.step.format(stack="dev")
    assert advice.answering("DependencyViolation: x") == advice.matching("DependencyViolation: x")


def test_a_reading_carries_the_code_and_keeps_the_speakers_own_answer_before_an_exit_code() -> None:
    found = run_json("explain", "mount helper says: [Errno 18] for the link")[1]["reading"]
    assert found["code"] == "EXDEV"
    assert "cross-device" in found["why"]
    assert run("explain", "Error: Error acquiring the state lock")[1].startswith(
        "No known failure matches. By its code: acquiring the state lock (Terraform)\n"
    )
    slurm = reading.read("slurmd: error: thing not writable, Permission denied: errno=18")
    assert slurm
    assert slurm.code == "EXDEV"
    assert "cross-device" not in slurm.why
