"""The AWS services that get an interface endpoint in the VPC. Cost and quota estimates count the same ones."""

from .keys import NetworkConfig

# Nodes use these services often enough to keep the traffic off the NAT gateway; the networking template of
# github.com/sunilpp/hyperpod-quickstart has the same four.
OPEN_ENDPOINTS = ("ecr.api", "ecr.dkr", "sts", "logs")
# Without a NAT gateway, every service that a node or its agents call needs an endpoint: boot (ec2, fsx, ssm,
# sagemaker), Session Manager (ssmmessages, ec2messages), images, logs, metrics and secrets. EKS adds those of the
# Amazon EKS User Guide, "Deploy private clusters with limited internet access".
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
# Where nodes and the add-on of EKS send metrics, with a Prometheus workspace.
METRICS_ENDPOINTS = ("aps-workspaces",)
CLOSED_EKS_ENDPOINTS = ("eks", "eks-auth", "autoscaling", "elasticloadbalancing")


def interface_services(net: NetworkConfig, *, on_eks: bool, metrics: bool) -> tuple[str, ...]:
    """The services, by the last part of the endpoint service's name; none in an existing VPC, whose owner decides."""
    if net.vpc_id:
        return ()
    return closed_services(on_eks=on_eks, metrics=metrics) if net.closed else OPEN_ENDPOINTS


def closed_services(*, on_eks: bool, metrics: bool) -> tuple[str, ...]:
    """The services of which nodes without a way out need an endpoint."""
    return (*CLOSED_ENDPOINTS, *(CLOSED_EKS_ENDPOINTS if on_eks else ()), *(METRICS_ENDPOINTS if metrics else ()))
