"""The order of deletions that AWS does not enforce, though a wrong one leaves something behind.

A namespace with claims needs nodes, drivers and rights until nothing is left in it. Nodes need their add-ons.
"""

from operations.engine.state import HYPERPOD_CLUSTER

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
# SageMaker Developer Guide, "Deleting a SageMaker HyperPod cluster": its resources first, then those of EKS, or some
# may linger. Of the add-ons those can wait for it that EKS calls active without nodes.
_OF_NODES = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")


def check(account: Books, live: Live) -> None:
    """Raises Refused where the running command lets a resource go before what needs it has gone."""
    begins, _ = account.leaving.get((live.type, live.id), (0.0, 0.0))
    if live.type == _ADDON and live.inputs["addonName"] in _OF_NODES:
        nodes = [until for (kind, _), (_, until) in account.leaving.items() if kind == HYPERPOD_CLUSTER]
        if begins < max(nodes, default=0.0):
            raise Refused("Lingering", f"the HyperPod cluster still has nodes, and {live.inputs['addonName']} goes")
    why = _why(live)
    if not why:
        return
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
