"""EKS: control planes, add-ons and Pod Identity associations, as records."""

from ipaddress import IPv4Network
from typing import Any

from components.catalogue.kubernetes_versions import ADDON_VERSIONS, KUBERNETES_VERSIONS

from . import guardduty
from .addon_settings import check_settings
from .books import Books, Inputs, Live, Refused
from .kinds import register, release
from .records import record
from .schemas import to_cloudformation
from .updates import check_control_plane

CLUSTER = "aws:eks/cluster:Cluster"
# IANA IPv4 Special-Purpose Address Registry (RFC 6890) and multicast (RFC 5771): not public addresses.
_NOT_PUBLIC = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
# Amazon EKS User Guide, "Subnet requirements": zones without a control plane.
_ZONES_WITHOUT = ("use1-az3", "usw1-az2", "cac1-az3")
# Default versions that take no association with the add-on (github.com/awslabs/awsome-distributed-ai, issue 1075).
_WITHOUT_ASSOCIATIONS = {"amazon-sagemaker-hyperpod-training-operator": "v1.2.1-eksbuild.1"}


def _cluster_properties(i: Inputs) -> dict[str, Any]:
    properties = _all_cluster_properties(i)
    return {key: value for key, value in properties.items() if value is not None}


def _all_cluster_properties(i: Inputs) -> dict[str, Any]:
    access, vpc = i.get("accessConfig") or {}, i["vpcConfig"]
    types = [{"Type": t} for t in i.get("enabledClusterLogTypes") or []]
    return {
        "Name": i["name"],
        "RoleArn": i["roleArn"],
        "Version": str(i["version"]),
        "ResourcesVpcConfig": to_cloudformation("AWS::EKS::Cluster", {"resourcesVpcConfig": vpc})["ResourcesVpcConfig"],
        "AccessConfig": {key[0].upper() + key[1:]: value for key, value in access.items() if value is not None},
        "EncryptionConfig": _encryption(i),
        "Logging": {"ClusterLogging": {"EnabledTypes": types}},
    }


def _encryption(i: Inputs) -> list[dict[str, Any]] | None:
    given = i.get("encryptionConfig")
    return [{"Provider": {"KeyArn": given["provider"]["keyArn"]}, "Resources": given["resources"]}] if given else None


def _cluster(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    if str(i["version"]) not in KUBERNETES_VERSIONS:
        raise Refused("InvalidParameterException", f"unsupported Kubernetes version {i['version']}")
    if any(account.find(CLUSTER, name=i["name"])):
        raise Refused("ResourceInUseException", f"cluster already exists with name: {i['name']}")
    _check_public_access(i["vpcConfig"])
    subnets = {s.id: s for s in account.find("aws:ec2/subnet:Subnet")}
    zones = {subnets[s].inputs["availabilityZoneId"] for s in i["vpcConfig"]["subnetIds"]}
    if len(zones) < 2:
        raise Refused("InvalidParameterException", "subnets specified must be in at least two different AZs")
    if bad := zones & set(_ZONES_WITHOUT):
        raise Refused("UnsupportedAvailabilityZoneException", f"EKS has no control plane in {', '.join(sorted(bad))}")
    vpc = next(iter(subnets[s].inputs["vpcId"] for s in i["vpcConfig"]["subnetIds"]))
    group = account.client("ec2").create_security_group(
        GroupName=f"eks-cluster-sg-{i['name']}", Description="EKS created security group", VpcId=vpc
    )["GroupId"]
    # Amazon EKS User Guide, "View Amazon EKS security group requirements for clusters": the group's tags.
    inputs = {"vpcId": vpc, "tags": {"aws:eks:cluster-name": i["name"], f"kubernetes.io/cluster/{i['name']}": "owned"}}
    account.adopt("aws:ec2/securityGroup:SecurityGroup", f"control plane of {i['name']}", group, inputs)
    if account.guardduty:
        guardduty.watch(account, vpc, i["vpcConfig"]["subnetIds"])
    return i["name"], {
        "arn": account.arn("eks", f"cluster/{i['name']}"),
        "endpoint": f"https://{account.new_id('eks')[4:].upper()}.gr7.{account.region}.eks.amazonaws.com",
        "certificateAuthority": {"data": "Y2VydGlmaWNhdGU="},
        "certificateAuthorities": [{"data": "Y2VydGlmaWNhdGU="}],
        "status": "ACTIVE",
        "vpcConfig": {**i["vpcConfig"], "clusterSecurityGroupId": group, "vpcId": vpc},
        "identities": [{"oidcs": [{"issuer": f"https://oidc.eks.{account.region}.amazonaws.com/id/{i['name']}"}]}],
    }


def _check_public_access(vpc: Inputs) -> None:
    given = {text: IPv4Network(text) for text in vpc.get("publicAccessCidrs") or []}
    if refused := [text for text, block in given.items() if any(block.subnet_of(one) for one in _NOT_PUBLIC)]:
        raise Refused(
            "InvalidParameterException",
            f"The following CIDRs are not allowed in publicAccessCidrs: [{', '.join(refused)}]",
        )


def _update_cluster(account: Books, live: Live, i: Inputs) -> None:
    if str(i["version"]) not in KUBERNETES_VERSIONS:
        raise Refused("InvalidParameterException", f"unsupported Kubernetes version {i['version']}")
    _check_public_access(i["vpcConfig"])
    check_control_plane(live, i)


def _delete_cluster(account: Books, live: Live) -> None:
    # EKS also deletes the security group that it created.
    release(account, "aws:ec2/securityGroup:SecurityGroup", live.outputs["vpcConfig"]["clusterSecurityGroupId"])


def in_cluster(account: Books, i: Inputs) -> Live:
    """The EKS cluster that an input names. Raises Refused if it is not ready."""
    found = next(account.find(CLUSTER, name=i["clusterName"], by=account.now), None)
    if found is None:
        raise Refused("ResourceNotFoundException", f"no cluster found for name: {i['clusterName']}")
    return found


def _addon_properties(i: Inputs) -> dict[str, Any]:
    properties = {
        "ClusterName": i["clusterName"],
        "AddonName": i["addonName"],
        "AddonVersion": i.get("addonVersion"),
        "ResolveConflicts": i.get("resolveConflictsOnCreate"),
        "PodIdentityAssociations": [
            {"RoleArn": pair["roleArn"], "ServiceAccount": pair["serviceAccount"]}
            for pair in i.get("podIdentityAssociations") or []
        ]
        or None,
    }
    return {key: value for key, value in properties.items() if value is not None}


def _check_addon(cluster: Live, i: Inputs) -> None:
    """CreateAddon: the add-on version must support the cluster's Kubernetes version."""
    name, version, kubernetes = i["addonName"], i.get("addonVersion"), str(cluster.inputs["version"])
    fitting = [row for row in ADDON_VERSIONS if row.addon == name and kubernetes in row.kubernetes_versions]
    if not fitting:
        raise Refused("InvalidParameterException", f"addon {name} is not supported in Kubernetes {kubernetes}")
    if version and version not in [row.version for row in fitting]:
        raise Refused(
            "InvalidParameterException", f"addon version {version} of {name} is not for Kubernetes {kubernetes}"
        )
    if i.get("podIdentityAssociations") and name in _WITHOUT_ASSOCIATIONS:
        raise Refused(
            "InvalidParameterException",
            f"Pod Identity feature is not supported for addon version: {_WITHOUT_ASSOCIATIONS[name]}",
        )


def _addon(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    _check_addon(in_cluster(account, i), i)
    check_settings(i["addonName"], i.get("configurationValues") or "{}")
    arn = account.arn("eks", f"addon/{i['clusterName']}/{i['addonName']}/{account.new_id('a')[2:]}")
    return f"{i['clusterName']}:{i['addonName']}", {"arn": arn, "addonVersion": i.get("addonVersion") or "default"}


def _association(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    """Its namespace and account may come later: AWS's Terraform module of HyperPod makes it before the add-on."""
    in_cluster(account, i)
    one = f"a-{account.new_id('a')[2:]}"
    return one, {
        "associationArn": account.arn("eks", f"podidentityassociation/{i['clusterName']}/{one}"),
        "associationId": one,
    }


register(
    record(
        CLUSTER,
        "AWS::EKS::Cluster",
        _cluster,
        translate=_cluster_properties,
        on_update=_update_cluster,
        on_delete=_delete_cluster,
    )
)
register(
    record(
        "aws:eks/addon:Addon",
        "AWS::EKS::Addon",
        _addon,
        translate=_addon_properties,
        on_update=lambda account, live, i: _check_addon(in_cluster(account, i), i),
    )
)
register(
    record(
        "aws:eks/podIdentityAssociation:PodIdentityAssociation",
        "AWS::EKS::PodIdentityAssociation",
        _association,
    )
)
