"""The embedded account refuses what EKS and the Kubernetes API refuse."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from components.catalogue.kubernetes_versions import addon_version
from operations.engine.state import HYPERPOD_CLUSTER
from rehearsal.account import Account, Refused, emptying
from rehearsal.account.access_entries import ACCESS_ENTRY, NATIVE_ACCESS_ENTRY
from rehearsal.account.kinds import provider_refuses

CLUSTER, ADDON = "aws:eks/cluster:Cluster", "aws:eks/addon:Addon"
RELEASE, NAMESPACE = "kubernetes:helm.sh/v3:Release", "kubernetes:core/v1:Namespace"
CONFIG_MAP, QUEUE = "kubernetes:core/v1:ConfigMap", "kubernetes:kueue.x-k8s.io/v1beta1:LocalQueue"


@pytest.fixture
def account() -> Iterator[Account]:
    """An account with an EKS cluster and no nodes."""
    with Account("us-west-2") as account:
        account.adopt(CLUSTER, "cluster", "c", {"name": "c", "version": "1.34"}, {"arn": "arn:aws:eks:us-west-2:1:c"})
        yield account


def config_map(**changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default"},
        "data": {"key": "value"},
        **changes,
    }


def queue() -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"clusterQueue": "q"},
    }


def refusal(account: Account, token: str, inputs: dict[str, Any]) -> str:
    with pytest.raises(Refused) as refused:
        account.create(token, "one", inputs)
    return str(refused.value)


def test_a_valid_object_is_made_once_unless_the_provider_takes_over_what_is_there(account: Account) -> None:
    assert account.create(CONFIG_MAP, "one", config_map())[0] == "default/a"
    assert refusal(account, CONFIG_MAP, config_map()) == "AlreadyExists: ConfigMap default/a already exists"
    account.upserts = True
    assert account.create(CONFIG_MAP, "one", config_map(data={"key": "other"}))[0] == "default/a"
    assert account.live[CONFIG_MAP, "default/a"].inputs["data"] == {"key": "other"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data": {"key": 1}}, "data.key: 1 is not of type"),
        ({"dta": {}}, "'dta' was unexpected"),
        ({"kind": "ConfigMaps"}, "no matches for kind ConfigMaps in version v1 on Kubernetes 1.34"),
        ({"metadata": {"name": "a", "namespace": "nowhere"}}, 'namespaces "nowhere" not found'),
    ],
)
def test_what_the_api_server_refuses_is_refused(account: Account, changes: dict[str, Any], reason: str) -> None:
    assert reason in refusal(account, CONFIG_MAP, config_map(**changes))


def test_without_a_cluster_nothing_answers() -> None:
    with Account("us-west-2") as account:
        assert "no EKS cluster is up" in refusal(account, CONFIG_MAP, config_map())


def test_queues_need_kueue_and_kueue_needs_nodes(account: Account) -> None:
    assert "no matches for kind LocalQueue" in refusal(account, QUEUE, queue())
    release = {"name": "kueue", "namespace": "kueue-system", "chart": "./charts/kueue"}
    assert "no node takes them" in refusal(account, RELEASE, release)
    account.create(RELEASE, "kueue", {**release, "skipAwait": True})
    assert "failed calling webhook of kueue" in refusal(account, QUEUE, queue())
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    closed = {"instanceGroupName": "workers", "instanceCount": 2, "kubernetesConfig": {"taints": [taint]}}
    account.adopt(HYPERPOD_CLUSTER, "cluster", "h", {"instanceGroups": [closed]}, {})
    assert "no node takes it" in refusal(account, QUEUE, queue())
    empty = {"instanceGroupName": "empty", "instanceCount": 0}
    account.adopt(HYPERPOD_CLUSTER, "another", "e", {"instanceGroups": [empty]}, {})
    assert "no node takes it" in refusal(account, QUEUE, queue())
    account.adopt(HYPERPOD_CLUSTER, "third", "o", {"instanceGroups": [{**empty, "instanceCount": 1}]}, {})
    account.create(QUEUE, "queue", queue())


def test_a_namespace_takes_its_content_along(account: Account) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    account.create(NAMESPACE, "team", namespace)
    account.create(CONFIG_MAP, "one", config_map(metadata={"name": "a", "namespace": "team"}))
    account.delete(NAMESPACE, "team")
    assert not list(account.find(CONFIG_MAP))


def test_an_addon_version_of_another_kubernetes_is_refused(account: Account) -> None:
    addon = {"clusterName": "c", "addonName": "kube-proxy", "addonVersion": addon_version("kube-proxy", "1.35")}
    assert "is not for Kubernetes 1.34" in refusal(account, ADDON, addon)
    assert "addon toaster is not supported" in refusal(account, ADDON, {**addon, "addonName": "toaster"})
    account.create(ADDON, "kube-proxy", {**addon, "addonVersion": addon_version("kube-proxy", "1.34")})


@pytest.mark.parametrize(
    ("addon", "values", "reason"),
    [
        ("coredns", {"tolerate": []}, "$.tolerate: is not defined in the schema"),
        ("vpc-cni", {"enableNetworkPolicy": True}, "$.enableNetworkPolicy: bool found, str expected"),
        ("aws-ebs-csi-driver", {"controller": {"affinities": {}}}, "$.controller.affinities: is not defined"),
        ("aws-fsx-csi-driver", {"controller": {"affinity": {}}}, "$.controller: is not defined"),
    ],
)
def test_an_addon_takes_what_its_schema_has(account: Account, addon: str, values: dict[str, Any], reason: str) -> None:
    inputs = {"clusterName": "c", "addonName": addon, "addonVersion": addon_version(addon, "1.34")}
    assert reason in refusal(account, ADDON, {**inputs, "configurationValues": json.dumps(values)})


def test_an_addon_that_needs_no_permissions_takes_no_association(account: Account) -> None:
    role = "arn:aws:iam::123456789012:role/operator"
    account.adopt("aws:iam/role:Role", "role", "operator", {}, {"arn": role})
    who = {"roleArn": role, "serviceAccount": "hp-training-operator-controller-manager"}
    addon = {"clusterName": "c", "addonName": "amazon-sagemaker-hyperpod-training-operator"}
    assert refusal(account, ADDON, {**addon, "podIdentityAssociations": [who]}) == (
        "InvalidParameterException: Pod Identity feature is not supported for addon version: v1.2.1-eksbuild.1"
    )
    own = {**who, "clusterName": "c", "namespace": "aws-hyperpod"}
    _, made = account.create("aws:eks/podIdentityAssociation:PodIdentityAssociation", "operator", own)
    assert ":podidentityassociation/c/a-" in made["associationArn"]
    account.create(ADDON, "operator", addon)


def test_cert_manager_needs_its_namespace_and_for_its_hook_a_node(account: Account) -> None:
    values: dict[str, Any] = {"cert-manager": {"enabled": True}}
    release = {"name": "r", "namespace": "kube-system", "chart": "./charts/r", "skipAwait": True, "values": values}
    assert refusal(account, RELEASE, release) == 'NotFound: namespaces "cert-manager" not found'
    elsewhere = {"cert-manager": {"enabled": True, "namespace": "kube-system"}}
    assert "failed post-install" in refusal(account, RELEASE, {**release, "values": elsewhere})
    name, _ = account.create(RELEASE, "one", {**release, "values": {}})
    # An upgrade runs no post-install hook.
    with pytest.raises(Refused, match='namespaces "cert-manager" not found'):
        account.update(RELEASE, name, release)
    account.create(NAMESPACE, "home", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cert-manager"}})
    account.update(RELEASE, name, release)
    other = {**release, "name": "s"}
    assert "failed post-install" in refusal(account, RELEASE, other)
    values["cert-manager"]["startupapicheck"] = {"enabled": False}
    account.create(RELEASE, "two", other)


def test_an_access_policy_needs_an_entry_and_a_scope_that_makes_sense(account: Account) -> None:
    token = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
    role = "arn:aws:iam::123456789012:role/admin"
    account.adopt("aws:iam/role:Role", "role", "admin", {}, {"arn": role})
    policy = {
        "clusterName": "c",
        "principalArn": role,
        "policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
        "accessScope": {"type": "cluster"},
    }
    assert "no access entry" in refusal(account, token, policy)
    account.create("aws:eks/accessEntry:AccessEntry", "entry", {"clusterName": "c", "principalArn": role})
    assert "an access scope" in refusal(account, token, {**policy, "accessScope": {"type": "namespace"}})
    account.create(token, "policy", policy)


def test_a_node_s_access_entry_goes_past_pulumi_aws_whose_list_is_older_than_the_type(account: Account) -> None:
    role = "arn:aws:iam::123456789012:role/nodes"
    account.adopt("aws:iam/role:Role", "role", "nodes", {}, {"arn": role})
    entry = {"clusterName": "c", "principalArn": role, "type": "HYPERPOD_LINUX"}
    assert provider_refuses(ACCESS_ENTRY, entry) == [
        'expected type to be one of ["EC2" "EC2_LINUX" "EC2_WINDOWS" "FARGATE_LINUX" "HYBRID_LINUX" "STANDARD"], '
        "got HYPERPOD_LINUX"
    ]
    assert provider_refuses(NATIVE_ACCESS_ENTRY, entry) == []
    assert "must be one of" in refusal(account, NATIVE_ACCESS_ENTRY, {**entry, "type": "HYPERPOD"})
    assert "cannot be specified" in refusal(account, NATIVE_ACCESS_ENTRY, {**entry, "kubernetesGroups": ["a"]})
    account.create(NATIVE_ACCESS_ENTRY, "nodes", entry)
    assert "already exists" in refusal(account, ACCESS_ENTRY, {"clusterName": "c", "principalArn": role})


CLAIM, ROLE_POLICY = "kubernetes:core/v1:PersistentVolumeClaim", "aws:iam/rolePolicy:RolePolicy"
DETACH = json.dumps({"Statement": [{"Effect": "Allow", "Action": ["sagemaker:DetachClusterNodeVolume"]}]})


@pytest.mark.parametrize(
    ("token", "inputs", "reason"),
    [
        (HYPERPOD_CLUSTER, {"instanceGroups": []}, "they are on its nodes"),
        (ADDON, {"addonName": "aws-fsx-csi-driver"}, "only it unmounts and deletes volumes"),
        (ADDON, {"addonName": "coredns"}, "drivers find AWS by it"),
        (ADDON, {"addonName": "amazon-sagemaker-hyperpod-taskgovernance"}, "the finalizer off a Workload"),
        (ADDON, {"addonName": "amazon-sagemaker-hyperpod-observability"}, ""),
        (ROLE_POLICY, {"policy": DETACH}, "by sagemaker:DetachClusterNodeVolume"),
        (ROLE_POLICY, {"policy": "{}"}, ""),
    ],
)
def test_what_a_namespace_with_claims_needs_goes_only_after_it(
    account: Account, token: str, inputs: dict[str, Any], reason: str
) -> None:
    def delete(begins: float) -> None:
        account.adopt(token, "one", "one", inputs, {})
        account.leaving = {(CLAIM, "team/fsx"): (0, 3), (NAMESPACE, "team"): (3, 40), (token, "one"): (begins, 90)}
        emptying.check(account, account.live[token, "one"])

    delete(40)
    if reason:
        with pytest.raises(Refused, match=f"Terminating: namespace team still has pods and volumes .*{reason}"):
            delete(39)
    else:
        delete(39)
    # Nobody keeps volumes in a namespace without claims.
    account.leaving = {(NAMESPACE, "team"): (0, 40), (token, "one"): (0, 90)}
    emptying.check(account, account.live[token, "one"])


@pytest.mark.parametrize(("addon", "early"), [("vpc-cni", True), ("kube-proxy", True), ("metrics-server", False)])
def test_the_add_ons_of_nodes_go_after_the_nodes(account: Account, addon: str, early: bool) -> None:
    account.adopt(ADDON, "one", "one", {"addonName": addon}, {})
    account.leaving = {(HYPERPOD_CLUSTER, "arn"): (5, 605), (ADDON, "one"): (605, 635)}
    emptying.check(account, account.live[ADDON, "one"])
    account.leaving[ADDON, "one"] = (604, 634)
    if early:
        with pytest.raises(Refused, match=f"Lingering: the HyperPod cluster still has nodes, and {addon} goes"):
            emptying.check(account, account.live[ADDON, "one"])
    else:
        emptying.check(account, account.live[ADDON, "one"])
