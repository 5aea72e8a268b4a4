"""What holds data is kept: through an update that AWS refused, and through a plan that would take it away."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from operations import target
from operations.commands import changes as change_verbs
from operations.commands import deploy as deploy_verbs
from operations.deployment import deploy, leftovers, tagged
from operations.deployment.deploy import Report, require_kept
from operations.deployment.engines import Engine
from operations.engine.data_resources import PRECIOUS
from operations.engine.pulumi_cli import CommandRun
from operations.failures import Exit, Failure
from operations.target import Target
from operations.terminal import console
from rehearsal import verb_engine as rehearse
from rehearsal.account import Account
from rehearsal.account.kinds import KINDS
from tests.operations.aws import StubbedAws, run, stack
from tests.operations.small import Planning

LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
PROGRAM = """
import pulumi_aws as aws
vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16")
subnet = aws.ec2.Subnet("subnet", vpc_id=vpc.id, cidr_block="10.0.1.0/24", availability_zone_id="usw2-az2")
aws.fsx.LustreFileSystem("lustre", subnet_ids=subnet.id, deployment_type="PERSISTENT_2",
    per_unit_storage_throughput=250, storage_type="SSD", storage_capacity={gib})
"""


class Living:
    """A stack that outlives the verbs, as a real one does."""

    def __init__(self, chosen: Target, engine: Engine, account: Account) -> None:
        self.engine, self.account = engine, account
        self.chosen = chosen

    def wants(self, gib: int) -> None:
        (self.chosen.project.folder / "__main__.py").write_text(PROGRAM.format(gib=gib))

    def deploy(self, *words: str) -> tuple[int, str]:
        code, out, err = run("deploy", "dev", "--yes", *words)
        return code, out + err

    @property
    def system(self) -> tuple[str, int]:
        """The file system's id and size."""
        (live,) = self.account.find(LUSTRE)
        return live.id, live.inputs["storageCapacity"]


@pytest.fixture
def living(project: Callable[..., Target], monkeypatch: pytest.MonkeyPatch) -> Iterator[Living]:
    """It has a file system that has just grown to 2400 GiB, and does not grow again for six hours."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    chosen = project(PROGRAM.format(gib=1200))
    monkeypatch.setattr(target, "load", lambda stack, overrides=None: chosen)
    with rehearse.rehearsed(chosen) as (engine, account):

        @contextmanager
        def opened(*_: object, **__: object) -> Iterator[tuple[Engine, None]]:
            yield engine, None

        for verbs in (deploy_verbs, change_verbs):
            monkeypatch.setattr(verbs, "open_engine", opened)
        living = Living(chosen, engine, account)
        assert living.deploy()[0] == Exit.GOOD
        living.wants(2400)
        assert living.deploy()[0] == Exit.GOOD
        living.wants(4800)
        yield living


def test_a_file_system_whose_growth_was_refused_outlives_the_old_size(living: Living) -> None:
    before = living.system
    code, said = living.deploy()
    assert code == Exit.FAILED
    assert "6 hours after the last increase" in said
    assert "desired values of lustre, not the actual ones" in said
    living.wants(2400)
    assert deploy.run(living.chosen, living.engine, "preview").changes == ["lustre (replace)"], "so Pulumi has it"
    code, out, err = run("preview", "dev")
    assert "lustre is removed: every file on it is lost" in out
    assert "The last update of lustre failed" in err
    code, said = living.deploy()
    assert code == Exit.GOOD
    assert "refreshing the state from AWS" in said
    assert "no changes were needed" in said
    assert living.system == before == (before[0], 2400)


def test_a_growth_that_was_refused_is_tried_again_and_not_taken_for_done(living: Living) -> None:
    living.deploy()
    code, said = living.deploy()
    assert (code, "6 hours" in said) == (Exit.FAILED, True)
    living.account.find(LUSTRE).__next__().notes.clear()
    assert living.deploy()[0] == Exit.GOOD
    assert living.system[1] == 4800


def test_what_holds_data_is_replaced_only_where_it_is_named(living: Living) -> None:
    before = living.system
    living.deploy()
    # A plain `pulumi up` in between succeeds without a word to AWS: nothing tells any more that the size is wrong.
    assert deploy.run(living.chosen, living.engine, "up").succeeded
    living.wants(2400)
    code, said = living.deploy()
    assert code == Exit.FAILED
    assert "lustre would be replaced or deleted: every file on it is lost" in said
    assert "pulumi refresh --stack dev" in said
    assert living.deploy("--lose", "lustre", "--lose", "vpc")[0] == Exit.BAD_INPUT
    assert living.system == before
    assert living.deploy("--lose", "lustre")[0] == Exit.GOOD
    assert living.system[0] != before[0]


def test_nothing_is_asked_of_aws_after_a_refresh_that_failed(living: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    living.deploy()
    seen: list[str] = []
    real: Any = living.engine.execute

    def execute(command: str, on_event: Any) -> CommandRun:
        seen.append(command)
        return CommandRun(failed=True) if command == "refresh" else real(command, on_event)

    monkeypatch.setattr(living.engine, "execute", execute)
    assert living.deploy()[0] == Exit.FAILED
    assert seen == ["refresh"]


@pytest.mark.parametrize("kind", PRECIOUS)
def test_what_nobody_has_asked_to_go_is_guarded(kind: str, project: Callable[..., Target]) -> None:
    class Planned:
        """An engine that only plans: one resource goes, another comes anew, and a third is not precious."""

        title = "planned"

        def execute(self, *_: object) -> CommandRun:
            ended = CommandRun()
            for name, operation in (("gone", "delete"), ("anew", "replace"), ("changed", "update")):
                ended.note_change(f"urn:pulumi:dev::hyperpod::parent${kind}::{name}", operation)
            ended.note_change("urn:pulumi:dev::hyperpod::aws:ec2/vpc:Vpc::vpc", "replace")
            return ended

        def cancel(self) -> None: ...

    engine: Any = Planned()
    report: Report = deploy.run(project(), engine, "preview")
    assert report.lost == dict.fromkeys(("gone", "anew"), PRECIOUS[kind].what)
    guarded = ["anew"] if PRECIOUS[kind].asked else ["gone", "anew"]
    assert report.guarded == guarded
    with pytest.raises(Failure, match=f"nothing was changed. {guarded[0]} would be replaced or deleted"):
        require_kept(report, guarded[1:])
    require_kept(report, guarded)


def test_file_system_clusters_buckets_images_and_keys_never_go_unasked() -> None:
    guarded = {kind.split(":")[1] for kind, loss in PRECIOUS.items() if not loss.asked}
    file_systems = {"fsx/lustreFileSystem", "fsx/openZfsFileSystem"}
    data = {*file_systems, "rds/instance", "s3/bucket", "ecr/repository", "kms/key"}
    assert guarded == {*data, "eks/cluster", "sagemaker"}
    asked = {kind.split(":")[1] for kind, loss in PRECIOUS.items() if loss.asked}
    assert asked == {"amp/workspace", "grafana/workspace", "sagemaker/mlflowApp", "core/v1", "cloudwatch/logGroup"}


def test_what_holds_data_is_named_as_the_account_knows_it() -> None:
    assert [kind for kind in PRECIOUS if not kind.startswith("kubernetes:") and kind not in KINDS] == []


@pytest.mark.slow
def test_a_rehearsed_deployment_knows_what_the_last_one_was_made_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    chosen = target.load("dev")
    with rehearse.rehearsed(chosen) as (engine, _):
        assert deploy.run(chosen, engine, "up").succeeded
        engine.configure({"hyperpod:workers[0].name": "workers", "hyperpod:workers[0].instanceType": "ml.p5.48xlarge"})
        report = deploy.run(chosen, engine, "preview")
        assert not report.succeeded
        assert "existing group cannot change to ml.p5.48xlarge" in str(report.cause)


@pytest.mark.parametrize(
    ("words", "answer", "again"), [((), True, True), ((), False, False), (("--yes",), True, False),
    (("--yes", "--remove-leftovers"), False, True)],
)  # fmt: skip
def test_guarddutys_endpoint_is_removed_after_asking_and_the_rest_is_destroyed(
    words: tuple[str, ...], answer: bool, again: bool, aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = tagged.Leftover(kind=leftovers.GUARDDUTY[0], id="vpce-1", by_aws=True, command="")
    there, asked = [endpoint], []

    def remove(_: Target, audit: leftovers.Audit) -> None:
        audit.removed += [f"{one.kind} {one.id}" for one in audit.leftovers]
        audit.leftovers.clear()
        there.clear()

    def answered(question: str, _: object) -> bool:
        asked.append(question)
        return answer

    monkeypatch.setattr(leftovers, "audit", lambda target: leftovers.Audit(leftovers=list(there)))
    monkeypatch.setattr(leftovers, "remove", remove)
    for name, stand_in in (("can_ask", lambda: True), ("answered", answered), ("confirm", lambda *_, **__: None)):
        monkeypatch.setattr(console, name, stand_in)
    engine, chosen = Planning(), stack(aws)
    monkeypatch.setattr(target, "load", lambda *_: chosen)
    monkeypatch.setattr(deploy_verbs, "open_engine", lambda *_, **__: nullcontext((engine, None)))
    run("destroy", "dev", *words)
    assert engine.did == ["destroy"] * (2 if again else 1)
    assert there == ([] if again else [endpoint])
    assert [one.split(" hold")[0] for one in asked] == ([] if "--yes" in words else ["GuardDuty's VPC endpoint vpce-1"])
