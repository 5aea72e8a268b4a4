"""Accounts and qualities of service that Slurm could not have are refused."""

from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from components.accounting.checks import strangers
from components.catalogue.regions import REGIONS
from components.common.names import Names
from components.config import Config
from components.nodes.provisioning import accounting, facts
from tests.components.config.refusals import EKS, Cases, problems
from tests.golden.stacks import VPC
from tests.support import ROOT, config

ON: dict[str, Any] = {"accounting": {"database": "local"}}
SUBNETS = ["subnet-0bbbbbbbbbbbbbbb1", "subnet-0bbbbbbbbbbbbbbb2"]


def slurm(**keys: Any) -> dict[str, Any]:
    return {"slurm": ON | keys}


def rds(**keys: Any) -> dict[str, Any]:
    return {"slurm": {"accounting": {"database": "rds", **keys}}}


BAD: Cases = {
    "on EKS": {**EKS, **slurm()},
    "accounts without accounting": {"slurm": {"accounts": [{"name": "lab"}]}},
    "packages without containers": {"slurm": {"containerPackages": "mine"}},
    "packages in no folder": {"slurm": {"containers": True, "containerPackages": ""}},
    "qualities without accounting": {"slurm": {"qos": [{"name": "late"}]}},
    "a person's account where there is none": slurm() | {"users": [{"name": "ada", "uid": 2001, "account": "lab"}]},
    "a database of another kind": {"slurm": {"accounting": {"database": "aurora"}}},
    "a class for the controller's own database": {"slurm": {"accounting": {"instanceClass": "db.m6g.large"}}},
    "a class without a price": rds(instanceClass="db.t2.micro"),
    "a small disk": rds(storageGiB=10),
    "a disk of other IOPS": rds(storageGiB=400),
    "backups for years": rds(backupDays=400),
    "subnets in our own VPC": rds(subnetIds=SUBNETS),
    "an existing VPC without them": {"network": VPC, **rds()},
    "one subnet twice": {"network": VPC, **rds(subnetIds=SUBNETS[:1] * 2)},
    "what the image's set-up cannot serve": {
        "slurm": {
            "setup": "image",
            "containers": True,
            "containerPackages": "mine",
            "sharedQueue": True,
            "accounting": {"database": "rds", "retentionMonths": 3},
        },
        "fsx": {"efa": True, "homeFileSystemId": "fs-0123456789abcdef0"},
        "network": VPC,
        "nodeProvisioning": "",
    },
    "the image's set-up on EKS": {**EKS, "slurm": {"setup": "image"}},
    "a region without certificates": {"region": "us-gov-west-1", "availabilityZoneId": "usgw1-az1", **rds()},
    "a second controller": {"slurm": {"controllers": 2}},
    "no month": {"slurm": {"accounting": {"retentionMonths": 0}}},
    "capitals": slurm(accounts=[{"name": "Lab"}]),
    "root": slurm(accounts=[{"name": "root"}]),
    "one name twice": slurm(accounts=[{"name": "lab"}, {"name": "lab"}]),
    "one quality twice": slurm(qos=[{"name": "late"}, {"name": "late"}]),
    "no such parent": slurm(accounts=[{"name": "lab", "parent": "labs"}]),
    "parents of each other": slurm(accounts=[{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]),
    "no such QOS": slurm(accounts=[{"name": "lab", "qos": ["urgent"]}], qos=[{"name": "late"}]),
    "a person twice": slurm(accounts=[{"name": "lab", "users": ["ada", "ada"]}]),
    "what is no user name": slurm(accounts=[{"name": "lab", "users": ["Ada L"]}]),
    "a person's account without accounting": {"users": [{"name": "ada", "uid": 2001, "account": "lab"}]},
    "a person's account that is none": slurm(accounts=[{"name": "lab"}, {"name": "guests"}])
    | {"users": [{"name": "ada", "uid": 2001, "account": "labs"}]},
    "a QOS that preempts itself": slurm(qos=[{"name": "urgent", "preempts": ["urgent"]}]),
    "a QOS that preempts none": slurm(qos=[{"name": "urgent", "preempts": ["norm"]}]),
}


def test_all_that_is_wrong_is_told_at_once() -> None:
    found = problems(**slurm(accounts=[{"name": "root", "qos": ["x"]}], qos=[{"name": "y", "preempts": ["z"]}]))
    assert len(found) == 3


def test_nodes_are_told_of_accounting_only_where_it_is_configured() -> None:
    assert of_nodes() is None
    assert of_nodes(accounting={}).accounts == ()
    found = of_nodes(**ON, accounts=[{"name": "lab", "maxGpus": 4}], qos=[{"name": "late"}])
    assert found
    assert (found.retention_months, found.accounts[0].parent, found.accounts[0].max_gpus) == (13, "root", 4)
    assert found.qos[0].priority == 0


def test_people_in_no_account_may_run_jobs_too() -> None:
    people = [{"name": name, "uid": 2000 + number} for number, name in enumerate(("ada", "bob"))]
    lab = {"name": "lab", "users": ["ada"]}
    found = accounting(config("slurm-gpu", users=people, slurm=ON | {"accounts": [lab]}))
    assert found
    assert [(account.name, account.users) for account in found.accounts] == [("default", ("bob",)), ("lab", ("ada",))]
    found = accounting(config("slurm-gpu", users=people, slurm=ON | {"accounts": [lab, {"name": "default"}]}))
    assert found
    assert found.accounts[1].users == ("bob",)


def test_whose_account_is_configured_is_in_it_and_charged_to_it() -> None:
    people = [{"name": name, "uid": 2000 + number, "account": "lab"} for number, name in enumerate(("ada", "bob"))]
    accounts = [{"name": "guests", "users": ["ada"]}, {"name": "lab", "users": ["bob"]}]
    found = accounting(config("slurm-gpu", users=people, slurm=ON | {"accounts": accounts}))
    assert found
    assert [(account.name, account.users) for account in found.accounts] == [
        ("guests", ("ada",)),
        ("lab", ("bob", "ada")),
    ]
    assert [(one.user, one.account) for one in found.defaults] == [("ada", "lab"), ("bob", "lab")]


def test_members_whom_the_list_of_people_lacks_are_told_of_where_there_is_a_list() -> None:
    accounts = slurm(accounts=[{"name": "lab", "users": ["ada", "bbo", "ubuntu"]}])
    named = config("slurm-gpu", **accounts).settings.slurm.accounts
    assert strangers((), named) == []
    people = [{"name": name, "uid": 2000 + number} for number, name in enumerate(("ada", "bob"))]
    assert strangers(config("slurm-gpu", users=people).settings.users, named) == ["bbo"]


def test_every_region_that_hyperpod_is_in_has_its_authority_and_none_ends_soon() -> None:
    text = (ROOT / "lifecycle/hyperpod_node/accounting/rds-ca.pem").read_bytes()
    found = x509.load_pem_x509_certificates(text)
    names = {str(one.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value) for one in found}
    wanted = {f"Amazon RDS {one.name} Root CA RSA2048 G1" for one in REGIONS.values() if one.partition == "aws"}
    assert names == wanted
    assert min(one.not_valid_after_utc.year for one in found) > 2060


def of_nodes(**keys: Any) -> Any:
    chosen: Config = config("slurm-gpu", **({"slurm": keys} if keys else {}))
    return accounting(chosen)


@pytest.mark.parametrize(
    ("stack", "kind", "gres"),
    [
        ("slurm-gpu", "ml.p5.48xlarge", "gpu:h100"),
        ("slurm-gpu", "ml.g7e.48xlarge", "gpu:rtx_pro_server_6000"),
        ("slurm-trainium", "ml.trn1.32xlarge", "neuron:trainium"),
    ],
)
def test_accelerators_have_their_model_in_slurm_where_it_is_asked_for(stack: str, kind: str, gres: str) -> None:
    for typed in (False, True):
        chosen = config(stack, slurm={"typedGres": typed}, workers=[{"name": "workers", "instanceType": kind}])
        found = {
            group.gres
            for group in facts(chosen, Names(cluster="mine", region="us-west-2", digest="12345678")).instance_groups
        }
        assert found == {"", gres if typed else gres.split(":")[0]}
