"""What a namespace with claims needs until nothing is left in it: AWS lets all of it go, and the namespace stays."""

from __future__ import annotations

from stack.state import HYPERPOD_CLUSTER

from .books import Books, Live, Refused

_ADDON, _NAMESPACE = "aws:eks/addon:Addon", "kubernetes:core/v1:Namespace"
_CLAIM, _ROLE_POLICY = "kubernetes:core/v1:PersistentVolumeClaim", "aws:iam/rolePolicy:RolePolicy"
# SageMaker Developer Guide, "Using the Amazon EBS CSI driver on SageMaker HyperPod EKS clusters". By the API Reference
# the cluster must be InService, which one that is being deleted is not.
_DETACH = "sagemaker:DetachClusterNodeVolume"
# A pod stays Terminating without the driver that unmounts its volumes (spiffe/helm-charts, pull request 437;
# IBM/ibm-spectrum-scale-csi, issue 246), and a volume stays on the bill without the one that deletes it (AWS samples,
# sample-aws-eks-auto-mode, cleanup playbook; global-capacity-orchestrator-on-aws, issue 268).
_DRIVER = "only it unmounts and deletes volumes"
_ADDONS = {
    "aws-ebs-csi-driver": _DRIVER,
    "aws-fsx-csi-driver": _DRIVER,
    "aws-mountpoint-s3-csi-driver": _DRIVER,
    "coredns": "drivers find AWS by it",
    "eks-pod-identity-agent": "drivers get their credentials from it",
    # github.com/kubernetes-sigs/kueue, pkg/controller/jobframework: resource-in-use.
    "amazon-sagemaker-hyperpod-taskgovernance": "only its Kueue takes the finalizer off a Workload",
}


def check(account: Books, live: Live) -> None:
    """Raises Refused where the running command lets a resource go before a namespace that needs it has gone."""
    why = _why(live)
    if not why:
        return
    begins, _ = account.leaving.get((live.type, live.id), (0.0, 0.0))
    for namespace in sorted({one.split("/")[0] for kind, one in account.leaving if kind == _CLAIM}):
        _, gone = account.leaving.get((_NAMESPACE, namespace), (0.0, 0.0))
        if begins < gone:
            raise Refused("Terminating", f"namespace {namespace} still has pods and volumes while this goes: {why}")


def _why(live: Live) -> str:
    if live.type == HYPERPOD_CLUSTER:
        return "they are on its nodes"
    if live.type == _ROLE_POLICY and _DETACH in live.inputs["policy"]:
        return f"the EBS driver detaches volumes by {_DETACH}"
    return _ADDONS.get(live.inputs["addonName"], "") if live.type == _ADDON else ""
