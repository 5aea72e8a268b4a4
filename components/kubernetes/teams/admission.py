"""Rules by which the API server refuses objects, whatever the caller's rights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi_kubernetes as kubernetes
from pulumi import ComponentResource, ResourceOptions

from ..network_policies import OPERATOR_NAMESPACE
from .queues import QUEUE_LABEL

admission, meta = kubernetes.admissionregistration.v1, kubernetes.meta.v1
EXTERNAL_IPS, TEAM_PODS, TEAM_JOBS = "no-external-ips", "hyperpod-team-pods", "hyperpod-team-jobs"
# The label of teams' namespaces.
TEAM_LABEL = "hyperpod/team"
# As Kubernetes' own admission plugin DenyServiceExternalIPs, which nobody can turn on in EKS: an update may remove
# addresses, and may not add any (Kubernetes, "Admission Control in Kubernetes").
_NO_EXTERNAL_IPS = (
    "!has(object.spec.externalIPs) || object.spec.externalIPs.all(ip, oldObject != null && "
    "has(oldObject.spec.externalIPs) && ip in oldObject.spec.externalIPs)"
)
# The volumes of Kubernetes' restricted Pod Security Standard without those of CSI drivers that a pod declares itself:
# such a volume reaches any file system that the driver does, past classes, quotas and the teams' directories.
VOLUMES = ("configMap", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret")
# How devices are called that jobs wait for: GPUs and their parts, Trainium chips and cores, EFA interfaces.
_DEVICE = "r.startsWith('nvidia.com/') || r.startsWith('aws.amazon.com/neuron') || r == 'vpc.amazonaws.com/efa'"
_ASKS = f"exists(c, has(c.resources) && has(c.resources.limits) && c.resources.limits.exists(r, {_DEVICE}))"
_ASKS_IN = f"({{0}}.containers.{_ASKS} || has({{0}}.initContainers) && {{0}}.initContainers.{_ASKS})"
# The creators of jobs' pods, and Kueue. Each controller of Kubernetes has its own service account in kube-system.
_NAMESPACES = ("kube-system", "kubeflow", "mpi-operator", "kueue-system", OPERATOR_NAMESPACE)
# These make pods and jobs of objects without a queue (Kubernetes, "Controller roles"; Kueue's frameworks, queues.py).
_UNQUEUED = ("replicaset-controller", "replication-controller", "statefulset-controller", "cronjob-controller")
# dyn: the API server would warn of fields that not every kind of job has, and of limits, whose type it does not know.
_OF_PODS = {
    "spec": "dyn(object.spec)",
    "controlled": (
        f"request.userInfo.username.matches('^system:serviceaccount:({'|'.join(_NAMESPACES)}):') && "
        f"!request.userInfo.username.matches('^system:serviceaccount:kube-system:({'|'.join(_UNQUEUED)})$')"
    ),
}
_OF_JOBS = {
    **_OF_PODS,
    "templates": (
        "has(variables.spec.template) ? [variables.spec.template] : "
        "has(variables.spec.replicaSpecs) ? variables.spec.replicaSpecs.map(one, one.template) : "
        "has(variables.spec.pytorchReplicaSpecs) ? "
        "variables.spec.pytorchReplicaSpecs.map(k, variables.spec.pytorchReplicaSpecs[k].template) : "
        "has(variables.spec.mpiReplicaSpecs) ? "
        "variables.spec.mpiReplicaSpecs.map(k, variables.spec.mpiReplicaSpecs[k].template) : []"
    ),
    "free": f"variables.controlled || !variables.templates.exists(t, {_ASKS_IN.format('t.spec')})",
}
_SUSPENDED = (
    "(has({0}.suspend) ? {0}.suspend : has({0}.runPolicy) && has({0}.runPolicy.suspend) && {0}.runPolicy.suspend)"
)
_JOBS = {
    f"variables.free || has(object.metadata.labels) && '{QUEUE_LABEL}' in object.metadata.labels": (
        f"jobs with accelerators or EFA wait in a queue: give the job the label {QUEUE_LABEL}"
    ),
    # Kueue takes a job whose controller is another of its jobs for a part of that one, and does not queue it (Kueue,
    # jobframework). A CronJob is not such a job.
    "variables.free || !has(object.metadata.ownerReferences) || object.metadata.ownerReferences.all(o, "
    "!has(o.controller) || !o.controller || o.kind == 'CronJob')": (
        "a job that belongs to another one would pass the queue: leave its owner out"
    ),
    f"variables.free || oldObject == null || !{_SUSPENDED.format('dyn(oldObject.spec)')} || "
    f"{_SUSPENDED.format('variables.spec')}": ("only the queue starts a job that waits in it: leave suspend as it is"),
}
_Rules = Mapping[str, str]


class Admission(ComponentResource):
    """Owns the policies that refuse Services with ``externalIPs``, and objects in teams' namespaces that bypass limits.

    Whoever may create a Service could otherwise take over any address for all pods of the cluster (CVE-2020-8554). A
    pod with a priority preempts others' pods, and one that names its node bypasses the scheduler; neither is in any
    queue. With queues (``queued``), only their jobs have devices: no queue counts a pod without a job. Deliberately
    absent: Services with ports on nodes or load balancers, which the teams' quotas refuse.
    """

    def __init__(self, name: str, *, queued: bool, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Admission", name, None, opts)
        self._child = ResourceOptions(parent=self)
        services = {_NO_EXTERNAL_IPS: "externalIPs would take over addresses of others: leave them out"}
        self._refuse(f"{name}-external-ips", EXTERNAL_IPS, [_of("", "v1", "services", update=True)], services)
        pods = {
            "!has(object.spec.nodeName) || object.spec.nodeName == ''": (
                "nodeName passes the scheduler: leave it out, and select nodes by nodeSelector"
            ),
            "!has(object.spec.priority) || object.spec.priority <= 0": (
                "priorityClassName would preempt pods of others: leave it out"
            ),
            f"!has(object.spec.volumes) || object.spec.volumes.all(v, {' || '.join(f'has(v.{v})' for v in VOLUMES)})": (
                f"pods have volumes of these kinds only: {', '.join(VOLUMES)}"
            ),
        }
        if queued:
            pods[f"variables.controlled || !{_ASKS_IN.format('variables.spec')}"] = (
                f"accelerators and EFA are for jobs that wait in a queue: create a job with the label {QUEUE_LABEL}"
            )
        of_pods = _OF_PODS if queued else {}
        self._refuse(f"{name}-team-pods", TEAM_PODS, [_of("", "v1", "pods")], pods, of_teams=of_pods)
        if queued:
            kinds = [
                _of("batch", "v1", "jobs", update=True),
                _of("kubeflow.org", "*", "mpijobs", "pytorchjobs", update=True),
                _of("sagemaker.amazonaws.com", "*", "hyperpodpytorchjobs", update=True),
            ]
            self._refuse(f"{name}-team-jobs", TEAM_JOBS, kinds, _JOBS, of_teams=_OF_JOBS)
        self.register_outputs({})

    def _refuse(
        self,
        resource: str,
        policy_name: str,
        kinds: Sequence[kubernetes.admissionregistration.v1.NamedRuleWithOperationsArgs],
        rules: _Rules,
        *,
        of_teams: _Rules | None = None,
    ) -> None:
        """Create a policy whose rules (expression: the API server's message) must all hold: everywhere, or with these
        variables in teams' namespaces.
        """
        metadata = meta.ObjectMetaArgs(name=policy_name)
        there = meta.LabelSelectorRequirementArgs(key=TEAM_LABEL, operator="Exists")
        policy = admission.ValidatingAdmissionPolicy(
            resource,
            metadata=metadata,
            spec=admission.ValidatingAdmissionPolicySpecArgs(
                failure_policy="Fail",
                match_constraints=admission.MatchResourcesArgs(
                    resource_rules=list(kinds),
                    namespace_selector=None if of_teams is None else meta.LabelSelectorArgs(match_expressions=[there]),
                ),
                variables=[admission.VariableArgs(name=n, expression=e) for n, e in (of_teams or {}).items()] or None,
                validations=[admission.ValidationArgs(expression=e, message=message) for e, message in rules.items()],
            ),
            opts=self._child,
        )
        admission.ValidatingAdmissionPolicyBinding(
            f"{resource}-binding",
            metadata=metadata,
            spec=admission.ValidatingAdmissionPolicyBindingSpecArgs(
                policy_name=policy_name, validation_actions=["Deny"]
            ),
            opts=ResourceOptions.merge(self._child, ResourceOptions(depends_on=[policy])),
        )


def _of(
    group: str, version: str, *resources: str, update: bool = False
) -> kubernetes.admissionregistration.v1.NamedRuleWithOperationsArgs:
    return admission.NamedRuleWithOperationsArgs(
        api_groups=[group],
        api_versions=[version],
        operations=["CREATE", "UPDATE"] if update else ["CREATE"],
        resources=list(resources),
    )
