"""What the API server refuses of everybody, whatever their rights: rules that it checks itself."""

from __future__ import annotations

import pulumi_kubernetes as kubernetes
from pulumi import ComponentResource, ResourceOptions

admission = kubernetes.admissionregistration.v1
NAME = "no-external-ips"
# As Kubernetes' own admission plugin DenyServiceExternalIPs, which nobody can turn on in EKS: an update may leave out
# addresses that are there, and may not add any (Kubernetes, "Admission Control in Kubernetes").
_RULE = (
    "!has(object.spec.externalIPs) || object.spec.externalIPs.all(ip, oldObject != null && "
    "has(oldObject.spec.externalIPs) && ip in oldObject.spec.externalIPs)"
)


class Admission(ComponentResource):
    """Owns the policy that refuses Services with ``externalIPs``.

    Whoever may create a Service could otherwise take over any address for all pods of the cluster (CVE-2020-8554).
    Deliberately absent: Services with ports on nodes or load balancers, which the teams' quotas refuse.
    """

    def __init__(self, name: str, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Admission", name, None, opts)
        metadata, child = kubernetes.meta.v1.ObjectMetaArgs(name=NAME), ResourceOptions(parent=self)
        policy = admission.ValidatingAdmissionPolicy(
            f"{name}-external-ips",
            metadata=metadata,
            spec=admission.ValidatingAdmissionPolicySpecArgs(
                failure_policy="Fail",
                match_constraints=admission.MatchResourcesArgs(
                    resource_rules=[
                        admission.NamedRuleWithOperationsArgs(
                            api_groups=[""],
                            api_versions=["v1"],
                            operations=["CREATE", "UPDATE"],
                            resources=["services"],
                        )
                    ]
                ),
                validations=[
                    admission.ValidationArgs(
                        expression=_RULE,
                        message="externalIPs would take over addresses of others: leave them out",
                    )
                ],
            ),
            opts=child,
        )
        admission.ValidatingAdmissionPolicyBinding(
            f"{name}-external-ips-binding",
            metadata=metadata,
            spec=admission.ValidatingAdmissionPolicyBindingSpecArgs(policy_name=NAME, validation_actions=["Deny"]),
            opts=ResourceOptions.merge(child, ResourceOptions(depends_on=[policy])),
        )
        self.register_outputs({})
