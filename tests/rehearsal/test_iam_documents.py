"""The deployer's policies: with them alone a stack comes up, stays and goes, and nobody else's resource is touched."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from components.common.names import Names, for_stack
from components.config import parse
from operations.cluster.sessions import NON_INTERACTIVE, SSH
from operations.failures import Exit
from rehearsal.account import ACCOUNT_ID, Account, Caller
from rehearsal.account.authorization import actions
from rehearsal.account.grants import granted
from rehearsal.account.policies import policy_faults
from rehearsal.engines.deployment import destroy, up
from rehearsal.engines.protocol import _ANSWERS
from rehearsal.existing import prepare
from rehearsal.policy.iam_documents import POLICY_LIMIT, Policies, permissions, policies, questions, size
from tests.golden.stacks import BOUNDARY, GOLDEN, deployed, on_the_day
from tests.operations.aws import CLUSTER_ID, StubbedAws, cluster, ended, run_json
from tests.operations.test_types import ROWS
from tests.support import config, few_files, project

# IAM User Guide, "IAM and AWS STS quotas": managed policies attached to a role, unless AWS has raised it.
_MOST_POLICIES = 10
OTHER = "210987654321"
HERE = f"us-west-2:{ACCOUNT_ID}"
ROLES = f"arn:aws:iam::{ACCOUNT_ID}:role"


def names_of(name: str) -> Names:
    """The names of a golden stack's resources."""
    chosen = GOLDEN[name]
    loaded, checked = project(chosen.stack, **chosen.settings), config(chosen.stack, **chosen.settings)
    return for_stack(
        cluster=checked.settings.cluster_name,
        region=checked.region.name,
        account=ACCOUNT_ID,
        project=loaded.name,
        stack=loaded.stack,
    )


@cache
def written(name: str, cluster_id: str = "") -> Policies:
    return policies(deployed(name).state, names_of(name), ACCOUNT_ID, GOLDEN[name].stack, cluster_id)


def statements(documents: list[dict[str, Any]], without: str = "") -> list[dict[str, Any]]:
    """What the documents grant together, but for one action."""
    return [
        {**one, "Action": left}
        for document in documents
        for one in document["Statement"]
        if (left := [action for action in one["Action"] if action != without])
    ]


def live_with(name: str, without: str = "", whole: bool = True) -> str:
    """Deploy a stack with its policies alone, again unchanged, and destroy it. Returns why that did not work."""
    chosen = GOLDEN[name]
    loaded = project(chosen.stack, **chosen.settings)
    checked, caller = parse(loaded.config), Caller(f"{ROLES}/deployer", statements(written(name).deploy, without))
    with Account(checked.region.name) as account, on_the_day(), few_files():
        prepare(account, checked)
        account.caller, account.guardduty = caller, not checked.settings.network.private_subnet_id
        first = up(loaded, account)
        if first.failure or not whole:
            return first.failure
        again = up(loaded, account, old=first.state, old_outputs=first.outputs)
        assert not again.failure
        assert not again.changes
        for resource in again.state.values():
            resource.protect = False
        return "; ".join([*destroy(again.state, account), *account.leftovers()])


def test_deployers_may_share_the_image_that_the_stack_names_if_it_has_the_tag() -> None:
    everything, tag = statements(written("eks-teams").deploy), "aws:ResourceTag/AllowSharing"
    for resource, shared, may in (
        ("image/ami-0123456789abcdef0", "true", True),
        ("image/ami-0123456789abcdef0", "false", False),
        ("image/ami-0123456789abcdef1", "true", False),
        ("snapshot/snap-0123456789abcdef0", "true", True),
    ):
        action = f"ec2:Modify{resource.split('/')[0].capitalize()}Attribute"
        assert granted(everything, (), action, f"arn:aws:ec2:us-west-2::{resource}", {tag: shared}) is may, resource
    assert "ec2:ModifyImageAttribute" not in str(written("eks-gpu").deploy)


def test_deployers_may_use_the_training_plans_that_the_stack_names_and_no_more() -> None:
    on_plans = [one for one in statements(written("slurm-existing").deploy, "") if "training-plan" in str(one)]
    assert [set(one["Action"]) for one in on_plans] == [{"sagemaker:CreateCluster", "sagemaker:UpdateCluster"}]
    assert on_plans[0]["Resource"] == ["arn:aws:sagemaker:us-west-2:123456789012:training-plan/p5-week"]


@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDEN)
def test_every_stack_comes_up_and_goes_with_its_policies_alone(name: str) -> None:
    assert live_with(name) == ""


@pytest.mark.slow
@pytest.mark.parametrize("action", ["ec2:CreateVpc", "iam:PassRole"])
def test_without_an_action_the_account_refuses_in_awss_words(action: str) -> None:
    failure = live_with("dev", without=action, whole=False)
    assert (
        f"AccessDenied: User: arn:aws:iam::{ACCOUNT_ID}:role/deployer is not authorized to perform: {action}" in failure
    )


@pytest.mark.slow
@pytest.mark.parametrize("action", ["kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:CreateGrant"])
def test_whoever_encrypts_with_a_customer_key_may_use_it(action: str) -> None:
    assert f"is not authorized to perform: {action} on resource: " in live_with("slurm-govcloud", action, whole=False)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("dev", "eks-gpu") else pytest.mark.slow) for name in GOLDEN]
)
def test_the_policies_are_what_iam_takes_and_grant_what_they_seem_to(name: str) -> None:
    made, partition = written(name), "aws-us-gov" if name == "slurm-govcloud" else "aws"
    for documents in (made.deploy, made.operate):
        assert 1 <= len(documents) <= _MOST_POLICIES
        assert max(map(size, documents)) <= POLICY_LIMIT
        whole = {"Version": "2012-10-17", "Statement": statements(documents)}
        assert policy_faults(whole, "identity", partition) == []


THEIRS = {"aws:ResourceTag/hyperpod:cluster-id": "somebody-elses-01234567"}
ADMIN = {"iam:PolicyARN": "arn:aws:iam::aws:policy/AdministratorAccess"}
FOREIGN: list[tuple[str, str, Mapping[str, str]]] = [
    ("ec2:DeleteVpc", f"arn:aws:ec2:{HERE}:vpc/vpc-1", THEIRS),
    ("ec2:DeleteSubnet", f"arn:aws:ec2:{HERE}:subnet/subnet-1", {}),
    ("ec2:AuthorizeSecurityGroupIngress", f"arn:aws:ec2:{HERE}:security-group/sg-1", THEIRS),
    ("ec2:TerminateInstances", f"arn:aws:ec2:{HERE}:instance/i-1", {}),
    ("ec2:CreateTags", f"arn:aws:ec2:{HERE}:vpc/vpc-1", {"aws:RequestTag/hyperpod:cluster-id": "CLUSTER"}),
    ("fsx:DeleteFileSystem", f"arn:aws:fsx:{HERE}:file-system/fs-1", THEIRS),
    ("fsx:DeleteFileSystem", f"arn:aws:fsx:{HERE}:file-system/fs-1", {}),
    ("sagemaker:DeleteCluster", f"arn:aws:sagemaker:{HERE}:cluster/abc", THEIRS),
    ("kms:ScheduleKeyDeletion", f"arn:aws:kms:{HERE}:key/1", {}),
    ("s3:DeleteBucket", "arn:aws:s3:::sagemaker-somebody-elses", {}),
    ("s3:GetObject", "arn:aws:s3:::sagemaker-somebody-elses/data", {}),
    ("iam:PutRolePolicy", f"{ROLES}/admin", {}),
    ("iam:DeleteRole", f"{ROLES}/admin", {}),
    ("iam:CreateUser", f"arn:aws:iam::{ACCOUNT_ID}:user/me", {}),
    ("iam:AttachRolePolicy", f"{ROLES}/OWN", ADMIN),
    ("iam:PassRole", f"{ROLES}/admin", {"iam:PassedToService": "sagemaker.amazonaws.com"}),
    ("iam:PassRole", f"{ROLES}/OWN", {"iam:PassedToService": "ec2.amazonaws.com"}),
    (
        "iam:CreateServiceLinkedRole",
        f"{ROLES}/aws-service-role/ecs.amazonaws.com/x",
        {"iam:AWSServiceName": "ecs.amazonaws.com"},
    ),
    ("logs:DeleteLogGroup", f"arn:aws:logs:{HERE}:log-group:/somebody/elses:log-stream:", {}),
    ("ssm:GetParameter", f"arn:aws:ssm:{HERE}:parameter/somebody/elses", {}),
    ("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{HERE}:secret:any", {}),
]


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        # Amazon RDS User Guide, "Permission policies to create, modify and, delete resources in Amazon RDS".
        ("rds:CreateDBInstance", f"arn:aws:rds:{HERE}:og:default:mariadb-10-11"),
        # hashicorp/terraform-provider-aws, issue 35737: by a filter, so on every database.
        ("rds:DescribeDBInstances", f"arn:aws:rds:{HERE}:db:*"),
        # AWS::RDS::DBInstance: what RDS asks in the caller's name.
        ("ec2:DescribeInternetGateways", "*"),
        # Amazon RDS User Guide, "Password management with Amazon RDS and AWS Secrets Manager".
        ("secretsmanager:CreateSecret", f"arn:aws:secretsmanager:{HERE}:secret:rds!db-1-abcdef"),
    ],
)
def test_what_is_asked_besides_the_database_itself_is_granted(action: str, resource: str) -> None:
    assert granted(statements(written("slurm-closed").deploy), (), action, resource, {}), f"{action} on {resource}"


@pytest.mark.parametrize(("name", "granted_there"), [("eks-gpu", True), ("dev", False)])
def test_whoever_deletes_a_cluster_on_eks_deletes_its_quotas_too(name: str, granted_there: bool) -> None:
    """SageMaker Developer Guide, "IAM users for cluster admin", Amazon EKS; task governance, "Troubleshoot"."""
    policy, quota = (f"arn:aws:sagemaker:{HERE}:{kind}/abc" for kind in ("cluster-scheduler-config", "compute-quota"))
    asked = {
        "ListComputeQuotas": "*",
        "ListClusterSchedulerConfigs": "*",
        "DeleteComputeQuota": quota,
        "DeleteClusterSchedulerConfig": policy,
    }
    given = statements(written(name).deploy)
    found = {action: granted(given, (), f"sagemaker:{action}", on, {}) for action, on in asked.items()}
    assert set(found.values()) == {granted_there}, found


BOUNDED = {"iam:PermissionsBoundary": BOUNDARY}
UNBOUNDED: list[dict[str, str]] = [{}, {"iam:PermissionsBoundary": ADMIN["iam:PolicyARN"]}]


@pytest.mark.parametrize("name", ["slurm-closed", "eks-teams"])
def test_a_deployer_gives_rights_to_roles_with_the_boundary_alone(name: str) -> None:
    given = statements(written(name).deploy)
    attached = next(one for one in given if "iam:AttachRolePolicy" in one["Action"])
    policy = {"iam:PolicyARN": attached["Condition"]["ArnEquals"]["iam:PolicyARN"][0]}
    own = f"{ROLES}/{names_of(name).role('worker')}"
    for action, context in (
        ("iam:CreateRole", {}),
        ("iam:PutRolePolicy", {}),
        ("iam:AttachRolePolicy", policy),
        ("iam:PutRolePermissionsBoundary", {}),
    ):
        assert granted(given, (), action, own, {**context, **BOUNDED}), action
        for unbounded in UNBOUNDED:
            assert not granted(given, (), action, own, {**context, **unbounded}), (action, unbounded)


def test_a_deployer_neither_takes_the_boundary_away_nor_edits_it() -> None:
    """Whatever else the deployer's role is allowed."""
    everything = [*statements(written("slurm-closed").deploy), {"Effect": "Allow", "Action": "*", "Resource": "*"}]
    own = f"{ROLES}/{names_of('slurm-closed').role('worker')}"
    for action, resource in (
        ("iam:DeleteRolePermissionsBoundary", own),
        *((f"iam:{edit}", BOUNDARY) for edit in ("CreatePolicyVersion", "SetDefaultPolicyVersion", "DeletePolicy")),
    ):
        assert not granted(everything, (), action, resource, BOUNDED), action
    assert granted(everything, (), "iam:CreatePolicyVersion", "arn:aws:iam::123456789012:policy/others", {})


def test_without_a_boundary_nothing_is_said_of_one() -> None:
    assert "oundary" not in str(written("dev").deploy)


_TARGET = {"ssm:SessionDocumentAccessCheck": "true"}
_NODE = f"arn:aws:ssm:{HERE}:managed-instance/sagemaker-cluster:"
_SHELL = f"arn:aws:ssm:{HERE}:document/SSM-SessionManagerRunShell"


def operated(name: str, cluster_id: str = "") -> list[dict[str, Any]]:
    """What an operator is granted, of a cluster whose id is known or not."""
    return statements(written(name, cluster_id).operate)


@pytest.mark.parametrize(
    ("resource", "context"),
    [
        (f"arn:aws:ec2:{HERE}:instance/i-0123456789abcdef0", _TARGET),
        (f"arn:aws:ssm:{HERE}:managed-instance/mi-0123456789abcdef0", _TARGET),
        (f"arn:aws:ecs:{HERE}:task/training/0123456789abcdef0123456789abcdef", _TARGET),
        (f"arn:aws:sagemaker:{HERE}:cluster/other", {**_TARGET, **THEIRS}),
        (f"{_NODE}other_workers-i-0123456789abcdef0", {**_TARGET, "ssm:resourceTag/sagemaker:cluster-name": "theirs"}),
        (f"arn:aws:ssm:{HERE}:document/AWS-StartPortForwardingSession", _TARGET),
        (f"arn:aws:ssm:{HERE}:document/hyperpod-somebodyelses-session", _TARGET),
    ],
)
@pytest.mark.parametrize("cluster_id", ["", "0wn"])
def test_an_operator_starts_no_session_elsewhere(resource: str, context: dict[str, str], cluster_id: str) -> None:
    assert not granted(operated("dev", cluster_id), (), "ssm:StartSession", resource, context)


def test_an_operator_starts_sessions_with_the_clusters_nodes_however_aws_names_them() -> None:
    given, by_id = operated("dev"), operated("dev", "0wn")
    names = names_of("dev")
    tagged = {"aws:ResourceTag/hyperpod:cluster-id": names.cluster_id}
    named = {"ssm:resourceTag/sagemaker:cluster-name": names.cluster}
    for resource, tags in (
        (f"arn:aws:sagemaker:{HERE}:cluster/0wn", tagged),
        (f"{_NODE}0wn_workers-i-0123456789abcdef0", named),
    ):
        assert granted(given, (), "ssm:StartSession", resource, {**_TARGET, **tags}), resource
        assert granted(by_id, (), "ssm:StartSession", resource, _TARGET), resource
        # A session that names no document has to need one.
        assert not granted(by_id, (), "ssm:StartSession", resource, {"ssm:SessionDocumentAccessCheck": "false"})


@pytest.mark.parametrize(("name", "shells"), [("dev", True), ("slurm-closed", False)])
def test_where_shells_are_recorded_an_operator_starts_no_other(name: str, shells: bool) -> None:
    given, here = operated(name), _SHELL
    own = f"arn:aws:ssm:{HERE}:document/hyperpod-{names_of(name).cluster_id}-session"
    assert granted(given, (), "ssm:StartSession", here, {}) is shells
    assert granted(given, (), "ssm:StartSession", own, {}) is not shells
    for document in (NON_INTERACTIVE, SSH):
        assert granted(given, (), "ssm:StartSession", f"arn:aws:ssm:us-west-2::document/{document}", {}), document


def test_an_operator_ends_the_sessions_that_he_started() -> None:
    session, mine = f"arn:aws:ssm:{HERE}:session/me-0123456789abcdef0", {"aws:userid": "AROAEXAMPLE:me"}
    for starter, may in (("AROAEXAMPLE:me", True), ("AROAEXAMPLE:you", False)):
        context = {**mine, "ssm:resourceTag/aws:ssmmessages:session-id": starter}
        assert granted(operated("dev"), (), "ssm:TerminateSession", session, context) is may, starter


def test_of_secrets_only_those_that_rds_manages_are_made() -> None:
    given = statements(written("slurm-closed").deploy)
    for action in ("secretsmanager:CreateSecret", "secretsmanager:TagResource"):
        assert not granted(given, (), action, f"arn:aws:secretsmanager:{HERE}:secret:somebodys", {}), action


@pytest.mark.parametrize("name", ["dev", "eks-gpu", "eks-teams"])
def test_what_is_not_the_stacks_is_out_of_reach(name: str) -> None:
    tags = next(one.inputs["tagsAll"] for one in deployed(name).state.values() if one.inputs.get("tagsAll"))
    cluster_id = tags["hyperpod:cluster-id"]
    own = f"{tags['hyperpod:cluster']}-us-west-2-worker-{cluster_id[-8:]}"
    given = statements(written(name).deploy)
    reached = []
    for action, resource, context in FOREIGN:
        known = {key: value.replace("CLUSTER", cluster_id) for key, value in context.items()}
        if granted(given, (), action, resource.replace("OWN", own), known):
            reached.append(f"{action} {resource} {known}")
    assert reached == []
    passed = {"iam:PassedToService": "sagemaker.amazonaws.com"}
    assert granted(given, (), "iam:PassRole", f"{ROLES}/{own}", passed)


def test_the_table_has_every_type_and_every_function_that_stacks_use_and_real_actions() -> None:
    types = {kind for kind in ROWS if not kind.startswith(("eks:index:", "kubernetes:"))}
    assert permissions().keys() == types | _ANSWERS.keys()
    for row in permissions().values():
        named = (*row.create, *row.read, *row.update, *row.delete)
        assert [name for name in named if [one.name for one in actions(name)] != [name]] == []
    assert [name for name in questions() if [one.name for one in actions(name)] != [name]] == []


def test_the_verb_writes_for_the_account_it_is_told() -> None:
    with few_files():
        code, found = run_json("policy", "dev", "--account", OTHER)
    text = str(found)
    names = for_stack(cluster="hyperpod-dev", region="us-west-2", account=OTHER, project="hyperpod", stack="dev")
    assert code == Exit.GOOD
    assert f"arn:aws:iam::{OTHER}:role/{names.any_role}" in text
    assert f"'{names.cluster_id}'" in text
    assert ACCOUNT_ID not in text
    assert written("dev").deploy[0] != found["deploy"][0]


def test_the_verb_limits_sessions_to_the_cluster_that_there_is(aws: StubbedAws) -> None:
    arn = f"arn:aws:sagemaker:{HERE}:cluster/{CLUSTER_ID}"
    aws.answer("sagemaker", "describe_cluster", cluster(), ClusterName="hyperpod-dev")
    with few_files():
        code, found = run_json("policy", "dev")
    assert code == Exit.GOOD
    assert arn in str(found["operate"])


def test_an_account_has_twelve_digits() -> None:
    _, err = ended(Exit.BAD_INPUT, "policy", "dev", "--account", "my-account")
    assert "--account: my-account is no AWS account" in err
