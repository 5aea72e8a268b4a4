"""The AWS services that a network has interface endpoints for. Cost and quota tables count the same ones."""

from __future__ import annotations

from ..config import Config

# What the quickstart's nodes use often enough to be worth keeping off the NAT gateway (research: HQ networking module).
OPEN_ENDPOINTS = ("ecr.api", "ecr.dkr", "sts", "logs")
# Without a NAT gateway, everything that a node or its agents call: boot (ec2, fsx, ssm, sagemaker), Session Manager
# (ssmmessages, ec2messages), images, logs, metrics, secrets (research: peers, closed network).
CLOSED_ENDPOINTS = (
    *OPEN_ENDPOINTS,
    "ec2",
    "ec2messages",
    "fsx",
    "kms",
    "monitoring",
    "sagemaker.api",
    "secretsmanager",
    "ssm",
    "ssmmessages",
)
CLOSED_EKS_ENDPOINTS = ("eks", "eks-auth", "autoscaling", "elasticloadbalancing")


def interface_services(config: Config) -> tuple[str, ...]:
    """The services, by the last part of the endpoint service's name; none in an existing VPC, which is its owner's."""
    settings = config.settings
    if settings.network.vpc_id:
        return ()
    if not settings.network.closed:
        return OPEN_ENDPOINTS
    eks = CLOSED_EKS_ENDPOINTS if settings.orchestrator == "eks" else ()
    return (*CLOSED_ENDPOINTS, *eks)
