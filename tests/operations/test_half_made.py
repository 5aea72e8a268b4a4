"""A creation that fails after AWS has accepted it leaves a resource that does not work: `deploy` makes it again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pulumi import automation

from operations import target
from operations.commands import deploy as deploy_verbs
from operations.deployment import deploy, engines
from operations.deployment.engines import Engine
from operations.engine.state import HYPERPOD_CLUSTER
from operations.failures import Exit
from operations.target import Target
from rehearsal import verb_engine as rehearse
from rehearsal.account import Account
from tests.operations.aws import run
from tests.operations.small import needs_cli
from tests.support import few_files

LUSTRE, SUBNET, VPC = "aws:fsx/lustreFileSystem:LustreFileSystem", "aws:ec2/subnet:Subnet", "aws:ec2/vpc:Vpc"
PROGRAM = """
import pulumi_aws as aws
vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16")
subnet = aws.ec2.Subnet("subnet", vpc_id=vpc.id, cidr_block="10.0.1.0/24", availability_zone_id="usw2-az2")
aws.fsx.LustreFileSystem("lustre", subnet_ids=subnet.id, deployment_type="PERSISTENT_2",
    per_unit_storage_throughput=250, storage_type="SSD", storage_capacity=1200)
"""
ENGINES = (
    "embedded",
    pytest.param("pulumi", marks=[pytest.mark.engine, needs_cli, pytest.mark.slow]),
)


class Living:
    """A stack that outlives the verbs, and a fault that strikes once."""

    def __init__(self, engine: Engine, account: Account) -> None:
        self.engine, self.account = engine, account
        account.faults[0].count = 1

    def deploy(self, *words: str) -> tuple[int, str]:
        code, out, err = run("deploy", "dev", "--yes", *words)
        return code, out + err

    def ids(self, kind: str) -> list[str]:
        return [live.id for live in self.account.find(kind)]


@pytest.fixture
def living(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The verbs on one engine and one account, in which a creation fails late."""

    @contextmanager
    def made(chosen: Target, fault: str, engine_name: str = "embedded") -> Iterator[Living]:
        if engine_name == "embedded":
            monkeypatch.setenv("PATH", "/usr/bin:/bin")
        monkeypatch.setattr(target, "load", lambda stack, overrides=None: chosen)
        with few_files(), rehearse.rehearsed(chosen, fail=[fault]) as (engine, account):

            @contextmanager
            def opened(*_: object, **__: object) -> Iterator[tuple[Engine, None]]:
                yield engine, None

            monkeypatch.setattr(deploy_verbs, "open_engine", opened)
            yield Living(engine, account)

    return made


@pytest.mark.parametrize("engine", ENGINES)
def test_what_does_not_work_is_deleted_and_created_again(
    living: Callable[..., Any], project: Callable[..., Target], engine: str
) -> None:
    with living(project(PROGRAM), "subnet=unavailable", engine) as here:
        code, said = here.deploy()
        assert code == Exit.FAILED
        assert "unexpected state 'FAILED'" in said
        (broken,), (vpc,) = here.ids(SUBNET), here.ids(VPC)
        code, said = here.deploy()
        assert code == Exit.GOOD, said
        assert "deleting it, to create it again" in said
        assert here.ids(SUBNET) != [broken]
        assert here.ids(VPC) == [vpc], "what works stays"
        assert here.engine.half_made() == []
        assert here.deploy()[0] == Exit.GOOD


@pytest.mark.parametrize("engine", ENGINES)
def test_a_file_system_that_may_work_by_now_goes_only_by_its_name(
    living: Callable[..., Any], project: Callable[..., Target], engine: str
) -> None:
    with living(project(PROGRAM), "lustre=unavailable", engine) as here:
        assert here.deploy()[0] == Exit.FAILED
        (broken,) = here.ids(LUSTRE)
        # Pulumi is content with any resource that exists.
        code, said = here.deploy()
        assert code == Exit.GOOD
        assert "deploy with --lose lustre" in said
        assert here.ids(LUSTRE) == [broken]


def test_a_file_system_that_does_not_work_goes_where_it_is_named(
    living: Callable[..., Any], project: Callable[..., Target]
) -> None:
    with living(project(PROGRAM), "lustre=unavailable") as here:
        assert here.deploy()[0] == Exit.FAILED
        (broken,) = here.ids(LUSTRE)
        code, said = here.deploy("--lose", "lustre")
        assert code == Exit.GOOD, said
        assert len(here.ids(LUSTRE)) == 1
        assert here.ids(LUSTRE) != [broken]


def test_what_was_deleted_by_hand_meanwhile_is_created_again(
    living: Callable[..., Any], project: Callable[..., Target]
) -> None:
    with living(project(PROGRAM), "lustre=unavailable") as here:
        here.deploy()
        here.account.delete(LUSTRE, here.ids(LUSTRE)[0])
        assert here.deploy()[0] == Exit.GOOD
        assert len(here.ids(LUSTRE)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lifecycle", "controller-capacity"])
def test_a_hyperpod_cluster_whose_nodes_did_not_boot_is_created_again(living: Callable[..., Any], kind: str) -> None:
    with living(target.load("dev"), f"hyperpod-cluster={kind}") as here:
        assert here.deploy()[0] == Exit.FAILED
        (broken,) = here.ids(HYPERPOD_CLUSTER)
        assert here.account.read(HYPERPOD_CLUSTER, broken)["clusterStatus"] == "Failed"
        code, said = here.deploy()
        assert code == Exit.GOOD, said
        (anew,) = here.ids(HYPERPOD_CLUSTER)
        assert anew != broken
        assert here.account.read(HYPERPOD_CLUSTER, anew)["clusterStatus"] == "InService"


@pytest.mark.slow
def test_a_plain_update_does_not_call_a_failed_cluster_a_success(living: Callable[..., Any]) -> None:
    chosen = target.load("dev")
    with living(chosen, "hyperpod-cluster=lifecycle") as here:
        here.deploy()
        (broken,) = here.ids(HYPERPOD_CLUSTER)
        for command in ("preview", "up", "up"):
            report = deploy.run(chosen, here.engine, command)
            assert not report.succeeded
            assert "It cannot be repaired, only deleted" in str(report.cause)
            assert "--lose hyperpod-cluster" in str(report.cause)
        assert here.ids(HYPERPOD_CLUSTER) == [broken]
        # After those updates nothing but AWS's word tells that its creation failed.
        assert here.deploy()[0] == Exit.FAILED
        code, said = here.deploy("--lose", "hyperpod-cluster")
        assert code == Exit.GOOD, said


CLUSTER_URN = f"urn:pulumi:dev::hyperpod::hyperpod:index:HyperPod${HYPERPOD_CLUSTER}::hyperpod-cluster"
FIRST, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("resource", "found"),
    [
        ({"initErrors": ["x"], "created": FIRST, "modified": FIRST}, [True]),
        ({"initErrors": ["x"], "created": FIRST, "modified": LATER}, []),
        ({"created": FIRST, "modified": FIRST}, []),
        ({"created": FIRST, "modified": LATER, "outputs": {"clusterStatus": "Failed"}}, [False]),
        ({"outputs": {"clusterStatus": "InService"}}, []),
    ],
)
def test_pulumis_state_tells_whose_creation_failed(tmp_path: Path, resource: dict[str, Any], found: list[bool]) -> None:
    state = automation.Deployment(3, {"resources": [{"urn": CLUSTER_URN, **resource}]})
    stack: Any = SimpleNamespace(export_stack=lambda: state)
    cli: Any = SimpleNamespace(version="3.0.0")
    here = engines.PulumiEngine(stack, cli)
    assert [(one.name, one.untouched) for one in here.half_made()] == [("hyperpod-cluster", one) for one in found]
