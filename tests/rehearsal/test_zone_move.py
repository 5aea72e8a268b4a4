"""A stack follows capacity into another zone with the commands that docs/data.md prints, in their order."""

import re
import shlex
from math import ceil
from typing import Any

import pytest
from botocore.validate import validate_parameters

from components.config import parse
from components.estimates import cost
from operations.engine.state import State, deletion_order
from rehearsal.account import Account
from rehearsal.engines.deployment import deletion_seconds, destroy, up
from rehearsal.existing import prepare
from rehearsal.nodes.aws_cli import _parse, _request
from tests.support import ROOT, few_files, project

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs" / "data.md").read_text().split("## Follow capacity into another zone\n")[1].split("\n## ")[0]
COMMANDS = [line.split("    #")[0].strip() for line in re.findall(r"^    (.+)$", PAGE, re.M)]
LUSTRE, LINK = (
    "aws:fsx/lustreFileSystem:LustreFileSystem",
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
)
BUCKET, SMALL, STACK = "my-training-data", "data/weights.bin", "slurm-gpu"


class World:
    """The account, the stack's files on this machine, and the file system's content, of which only the link exports."""

    def __init__(self, account: Account) -> None:
        self.account, self.state = account, State()
        self.settings: dict[str, Any] = {"fsx": {"linkedBucket": BUCKET}}
        self.files: dict[str, dict[str, bytes]] = {}
        self.tasks: list[dict[str, str]] = []
        prepare(account, parse(project(STACK, **self.settings).config))

    @property
    def file_system(self) -> Any:
        (found,) = self.account.find(LUSTRE)
        return found

    def deploy(self) -> None:
        made = up(project(STACK, **self.settings), self.account, old=self.state)
        assert made.failure == ""
        self.state = made.state
        # batchImportMetaDataOnCreate: the names of all objects are there at once.
        (link,) = self.account.find(LINK, fileSystemId=self.file_system.id, batchImportMetaDataOnCreate=True)
        s3, prefix = self.account.client("s3"), link.inputs["fileSystemPath"].strip("/")
        assert link.inputs["dataRepositoryPath"] == f"s3://{BUCKET}"
        objects = s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        self.files[self.file_system.id] = {
            f"{prefix}/{one['Key']}": s3.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read() for one in objects
        }

    def run(self, line: str) -> Any:
        """Run a command of the page."""
        line = re.sub(r"\bFSX\b", self.file_system.id, line) if "FSX" in line else line
        program, verb, *words = shlex.split(line)
        if program == "aws":
            return self._fsx(verb, words)
        if program == "hyperpod" and (verb, words) == ("destroy", [STACK]):
            assert destroy(self.state, self.account) == []
            self.files.clear()
        elif program == "hyperpod" and (verb, words) == ("deploy", [STACK]):
            self.deploy()
        else:
            assert (program, verb, words[0], words[3:]) == ("pulumi", "config", "set", ["--stack", STACK])
            self.settings[words[1].removeprefix("hyperpod:")] = words[2]
        return None

    def _fsx(self, service: str, words: list[str]) -> Any:
        """FSx's data repository tasks (FSx for Lustre User Guide, "Using data repository tasks to export changes")."""
        client = self.account.client(service)
        operation = client.meta.service_model.operation_model(
            {"create-data-repository-task": "CreateDataRepositoryTask"}.get(words[0], "DescribeDataRepositoryTasks")
        )
        _, options = _parse([service, *words])
        request = _request(operation.input_shape.members, options, {})
        validate_parameters(request, operation.input_shape)
        if operation.name == "DescribeDataRepositoryTasks":
            assert request["Filters"] == [{"Name": "file-system-id", "Values": [self.file_system.id]}]
            return [task["Lifecycle"] for task in self.tasks]
        assert request["Type"] == "EXPORT_TO_REPOSITORY"
        (link,) = self.account.find(LINK, fileSystemId=request["FileSystemId"])
        (path,) = request["Paths"]
        assert f"/{path}" == link.inputs["fileSystemPath"], "only what is under a link can be exported"
        for name, content in self.files[request["FileSystemId"]].items():
            if name.startswith(f"{path}/"):
                self.account.client("s3").put_object(Bucket=BUCKET, Key=name.removeprefix(f"{path}/"), Body=content)
        self.tasks.append({"Lifecycle": "SUCCEEDED"})
        return None


def test_the_pages_commands_take_a_stack_and_its_data_to_another_zone() -> None:
    assert 0 < len(COMMANDS) <= 5
    with Account("us-west-2") as account, few_files():
        world = World(account)
        world.deploy()
        before = world.file_system
        world.files[before.id] |= {SMALL: b"weights", "checkpoints/last": b"outside the link"}
        seconds = deletion_seconds(deletion_order(world.state))
        answers = [world.run(line) for line in COMMANDS]
        assert ["SUCCEEDED"] in answers
        after = world.file_system
        zones = {one.id: one.inputs["availabilityZoneId"] for one in account.find("aws:ec2/subnet:Subnet")}
        assert after.id != before.id
        assert zones[after.inputs["subnetIds"]] == world.settings["availabilityZoneId"]
        assert world.files[after.id] == {SMALL: b"weights"}
        made = max(one.finish for one in world.state.values())
        hourly = cost.estimate(parse(project(STACK).config)).hourly_usd
        assert hourly
        # What the page says of time and dollars.
        destroyed = ceil(seconds / 60)
        assert f"deletes `{STACK}` in about {destroyed} minutes and makes it again in about {ceil(made / 60)}" in PAGE
        assert f"${hourly:,.2f} an hour" in PAGE
        assert f"at most ${hourly * destroyed / 60:,.0f}" in PAGE
        assert destroy(world.state, account) == []
