"""pulumi-eks's Cluster component, for an engine without its provider: the children that version 4.4 registers.

It covers only what this project uses: no node groups, no default security groups, no OIDC provider, no add-ons.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from pulumi.runtime import rpc

from operations.engine.state import ResourceState

COMPONENT = "eks:index:Cluster"
_POLICY = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
Register = Callable[[ResourceState], ResourceState]


def construct_eks_cluster(component: ResourceState, register: Register, partition: str) -> dict[str, Any]:
    """Register the component's children and return its outputs (in a preview, the known ones)."""
    if component.type != COMPONENT:
        raise NotImplementedError(f"no provider for remote component {component.type}")
    name, inputs = component.name, component.inputs
    provider = tuple(urn for urn in component.dependencies if "pulumi:providers:" in urn)

    def child(
        token: str, suffix: str, parent: str, after: tuple[str, ...] = (), custom: bool = True, **args: Any
    ) -> ResourceState:
        return register(
            ResourceState(
                urn="",
                type=token,
                name=f"{name}-{suffix}",
                custom=custom,
                parent=parent,
                inputs={key: value for key, value in args.items() if value is not None},
                dependencies=(*provider, *after),
            )
        )

    service_role = child("eks:index:ServiceRole", "eksRole", component.urn, custom=False)
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Action": ["sts:AssumeRole", "sts:TagSession"],
                "Effect": "Allow",
                "Principal": {"Service": ["eks.amazonaws.com"]},
            }
        ],
    }
    role = child(
        "aws:iam/role:Role",
        "eksRole-role",
        service_role.urn,
        assumeRolePolicy=json.dumps(trust),
        description="Allows EKS to manage clusters on your behalf.",
        tags=inputs.get("tags"),
    )
    attachment = child(
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        f"eksRole-{hashlib.sha1(_POLICY.encode(), usedforsecurity=False).hexdigest()[:8]}",
        service_role.urn,
        (role.urn,),
        role=role.id or rpc.UNKNOWN,
        policyArn=_POLICY.replace("arn:aws:", f"arn:{partition}:"),
    )
    cluster = child(
        "aws:eks/cluster:Cluster",
        "eksCluster",
        component.urn,
        (role.urn, attachment.urn, *component.dependencies),
        name=inputs.get("name"),
        version=inputs.get("version"),
        roleArn=role.outputs.get("arn", rpc.UNKNOWN),
        vpcConfig={
            "subnetIds": inputs.get("subnetIds")
            or [*inputs.get("publicSubnetIds", []), *inputs.get("privateSubnetIds", [])],
            "endpointPrivateAccess": inputs.get("endpointPrivateAccess"),
            "endpointPublicAccess": inputs.get("endpointPublicAccess"),
            **({"publicAccessCidrs": inputs["publicAccessCidrs"]} if inputs.get("publicAccessCidrs") else {}),
        },
        accessConfig={
            "authenticationMode": inputs["authenticationMode"],
            "bootstrapClusterCreatorAdminPermissions": True,
        }
        if inputs.get("authenticationMode")
        else None,
        encryptionConfig={"provider": {"keyArn": inputs["encryptionConfigKeyArn"]}, "resources": ["secrets"]}
        if inputs.get("encryptionConfigKeyArn")
        else None,
        enabledClusterLogTypes=inputs.get("enabledClusterLogTypes"),
        tags={"Name": f"{name}-eksCluster", **inputs.get("tags", {})},
    )
    kubeconfig = _kubeconfig(cluster) if {"arn", "endpoint"} <= cluster.outputs.keys() else None
    access = json.dumps(kubeconfig) if kubeconfig else rpc.UNKNOWN
    access_provider = child("pulumi:providers:kubernetes", "eks-k8s", component.urn, (cluster.urn,), kubeconfig=access)
    if "CONFIG_MAP" in str(inputs.get("authenticationMode")):
        child(
            "kubernetes:core/v1:ConfigMap",
            "nodeAccess",
            component.urn,
            (cluster.urn, access_provider.urn),
            apiVersion="v1",
            kind="ConfigMap",
            immutable=False,
            metadata={"name": "aws-auth", "namespace": "kube-system", "annotations": {"pulumi.com/patchForce": "true"}},
            data={"mapRoles": "[]\n"},
        )
    reference = {
        rpc._special_sig_key: rpc._special_resource_sig,  # type: ignore[attr-defined]
        "urn": cluster.urn,
        "id": cluster.id,
        "packageVersion": "",
    }
    outputs: dict[str, Any] = {"eksCluster": reference}
    if kubeconfig:
        outputs |= {"kubeconfig": kubeconfig, "kubeconfigJson": access}
    return outputs


def _kubeconfig(cluster: ResourceState) -> dict[str, Any]:
    """A kubeconfig whose token comes from the AWS CLI, as pulumi-eks writes it."""
    region = cluster.outputs["arn"].split(":")[3]
    arguments = ["--region", region, "eks", "get-token", "--cluster-name", cluster.id, "--output", "json"]
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "aws", "args": arguments}}
    server = {
        "server": cluster.outputs["endpoint"],
        "certificate-authority-data": cluster.outputs["certificateAuthority"]["data"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "kubernetes", "cluster": server}],
        "contexts": [{"name": "aws", "context": {"cluster": "kubernetes", "user": "aws"}}],
        "current-context": "aws",
        "users": [{"name": "aws", "user": user}],
    }
