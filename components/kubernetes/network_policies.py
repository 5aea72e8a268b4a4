"""Network policies: the connections that a namespace's pods may open and accept."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi_kubernetes as kubernetes
from pulumi import Resource, ResourceOptions

from ..network.security_groups import HTTPS
from .keys import Charts
from .metrics_scraper import PORT

network, meta = kubernetes.networking.v1, kubernetes.meta.v1

# Amazon EKS User Guide, "Understand how EKS Pod Identity works": the agent's address on every node.
_POD_IDENTITY = "169.254.170.23/32"
_DNS, _HTTP = 53, 80
# SageMaker Developer Guide, "Installing the training operator": its namespace, and the port of the elastic agent in
# each pod of its jobs.
OPERATOR_NAMESPACE = "aws-hyperpod"
_AGENT = 8080
# amzn-sagemaker-checkpointing 1.1.3, InMemoryClientConfig: where a trainer finds the daemons that keep checkpoints in
# memory. They are in the nodes' own network, where no selector of pods finds them.
_CHECKPOINTS = 9200


def team_policy(
    name: str,
    namespace: str,
    scraped_from: Sequence[str] | None,
    opts: ResourceOptions,
    *,
    operated: bool,
    memory_checkpoints: bool,
) -> None:
    """Allow pods to reach each other, DNS and HTTPS, and only each other to reach them.

    ``scraped_from``: the addresses from which their metrics are read, at one port; empty if these are not known.
    ``operated``: SageMaker's training operator reaches the agents of its jobs. ``memory_checkpoints``: they reach the
    daemons that keep checkpoints.

    Not the file system: the node mounts it, in no pod's network (aws-fsx-csi-driver, pkg/driver/node.go), and a pod
    that spoke Lustre's protocol itself would bypass the directory of its volume.
    """
    everyone_here = network.NetworkPolicyPeerArgs(pod_selector=meta.LabelSelectorArgs())
    dns = _namespace("kube-system")
    agent = network.NetworkPolicyPeerArgs(ip_block=network.IPBlockArgs(cidr=_POD_IDENTITY))
    egress = [
        network.NetworkPolicyEgressRuleArgs(to=[everyone_here]),
        network.NetworkPolicyEgressRuleArgs(to=[dns], ports=[_port("UDP", _DNS), _port("TCP", _DNS)]),
        # AWS's endpoints, registries and model hubs.
        network.NetworkPolicyEgressRuleArgs(ports=[_port("TCP", HTTPS)]),
        network.NetworkPolicyEgressRuleArgs(to=[agent], ports=[_port("TCP", _HTTP)]),
    ]
    if memory_checkpoints:
        egress.append(network.NetworkPolicyEgressRuleArgs(ports=[_port("TCP", _CHECKPOINTS)]))
    ingress = [network.NetworkPolicyIngressRuleArgs(from_=[everyone_here])]
    if scraped_from is not None:
        blocks = [network.NetworkPolicyPeerArgs(ip_block=network.IPBlockArgs(cidr=block)) for block in scraped_from]
        ingress.append(network.NetworkPolicyIngressRuleArgs(from_=blocks or None, ports=[_port("TCP", PORT)]))
    if operated:
        operator = _namespace(OPERATOR_NAMESPACE)
        ingress.append(network.NetworkPolicyIngressRuleArgs(from_=[operator], ports=[_port("TCP", _AGENT)]))
    _policy(name, namespace, "training", ingress, egress, opts)


def deny_all(name: str, namespace: str, opts: ResourceOptions) -> None:
    """Deny pods all connections in both directions."""
    _policy(name, namespace, "closed", [], [], opts)


def allow_all(name: str, namespace: str, opts: ResourceOptions) -> Resource:
    """Allow pods all connections in both directions, as without a policy; strict mode cuts off pods without one."""
    everything = [network.NetworkPolicyIngressRuleArgs()], [network.NetworkPolicyEgressRuleArgs()]
    return _policy(name, namespace, "open", *everything, opts)


def system_namespaces(charts: Charts) -> list[str]:
    """Return the namespaces of the cluster's own pods: EKS's add-ons, and those that the HyperPod chart installs."""
    there = {
        OPERATOR_NAMESPACE: charts.deep_health_check,
        "kubeflow": charts.training_operator,
        "cert-manager": charts.cert_manager,
    }
    return ["kube-system", *(namespace for namespace, wanted in there.items() if wanted)]


def _policy(
    name: str,
    namespace: str,
    policy: str,
    ingress: list[kubernetes.networking.v1.NetworkPolicyIngressRuleArgs],
    egress: list[kubernetes.networking.v1.NetworkPolicyEgressRuleArgs],
    opts: ResourceOptions,
) -> Resource:
    return network.NetworkPolicy(
        name,
        metadata=meta.ObjectMetaArgs(name=policy, namespace=namespace),
        spec=network.NetworkPolicySpecArgs(
            pod_selector=meta.LabelSelectorArgs(),
            policy_types=["Ingress", "Egress"],
            ingress=ingress,
            egress=egress,
        ),
        opts=opts,
    )


def _namespace(name: str) -> kubernetes.networking.v1.NetworkPolicyPeerArgs:
    labels = {"kubernetes.io/metadata.name": name}
    return network.NetworkPolicyPeerArgs(namespace_selector=meta.LabelSelectorArgs(match_labels=labels))


def _port(protocol: str, port: int) -> kubernetes.networking.v1.NetworkPolicyPortArgs:
    return network.NetworkPolicyPortArgs(protocol=protocol, port=port)
