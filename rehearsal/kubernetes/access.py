"""Checks of a team's limits: RBAC, quotas, pod security and network policies."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.kubernetes.access import team_group
from components.kubernetes.pod_resources import device_resource, node_capacity
from components.kubernetes.storage import CLAIM_NAME
from components.kubernetes.teams.admission import EXTERNAL_IPS
from components.kubernetes.teams.directories import SHARED
from operations.failures import Failure
from operations.jobs import run as job_run
from operations.jobs.choices import Choices
from operations.jobs.kubernetes_api import KubernetesApi
from operations.jobs.render import render
from operations.jobs.requests import jobs_of

from ..checks import CheckFailed, require
from ..patience import until
from .kubectl import Manifest, Refused
from .run import Run

_SECONDS = 30.0
# How long to watch before concluding that something does not happen.
_STILL_SECONDS = 3.0
_USER = "somebody"
# Where jobs queue, only who makes the pods of jobs may ask for devices.
_JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
# Verb, resource: rights that a team needs in its own namespace and must not have anywhere else.
_OWN = (
    ("create", "pytorchjobs.kubeflow.org"),
    ("delete", "mpijobs.kubeflow.org"),
    ("get", "pods/log"),
    ("get", "secrets"),
    ("get", "namespaces"),
)
_NEVER = (
    ("delete", "nodes"),
    ("create", "persistentvolumes"),
    ("get", "persistentvolumes"),
    ("create", "clusterrolebindings"),
    ("update", "resourcequotas"),
    ("list", "namespaces"),
)
_ELSEWHERE = "kube-system"
_DNS, _LUSTRE = 53, 988


def rights(run: Run) -> str:
    """A team has rights in its own namespace, but none in other teams' or system namespaces, or on the cluster."""
    wrong, asked = [], 0
    for team, own in run.teams.items():
        groups = [team_group(team), "system:authenticated"]
        questions = [(verb, what, own, True) for verb, what in _OWN]
        for other in (*(one for one in run.namespaces if one != own), _ELSEWHERE):
            questions += [(verb, what, other, False) for verb, what in _OWN]
        questions += [(verb, what, own, False) for verb, what in _NEVER]
        for verb, what, where, expected in questions:
            asked += 1
            if run.kubectl.may(verb, what, where, user=_USER, groups=groups) != expected:
                wrong.append(f"team {team} may {'not ' if expected else ''}{verb} {what} in {where}")
    require(not wrong, "; ".join(wrong))
    return f"{asked} answers, as expected"


def job_runs(run: Run) -> str:
    """A member of each team may make the API calls of `hyperpod job run`: validate, submit, watch, delete."""
    names = jobs_of(run.config)
    for team, namespace in run.teams.items():
        certificate, key = run.plane.client(_USER, team_group(team))
        credentials = {"client-certificate": str(certificate), "client-key": str(key)}
        try:
            api = KubernetesApi.of(run.plane.kubeconfig(f"team-{team}", credentials))
            for name in names:
                objects = render(name, run.config, Choices(namespace=namespace, nodes=1))
                job_run.check(api, objects, run.config)
            job_run.submit(api, objects)
            api.pods(namespace, {"app": "any"})
            for document in reversed(objects):
                api.delete(document)
        except Failure as failure:
            raise CheckFailed(f"team {team}: {failure.message}") from None
    return f"{len(names)} jobs checked, one submitted and deleted, by each of {', '.join(run.teams)}"


def quota(run: Run) -> str:
    """A namespace's quota refuses a job's pod that asks for more than the whole cluster."""
    group = run.config.training_groups[0]
    device = device_resource(group)
    every = sum(int(node_capacity(one).get(device, 0)) * one.count for one in run.config.worker_groups)
    pod = _pod(run.namespaces[0], "too-many", {device: every + 1})
    said = _refusal(run, pod, _JOB_CONTROLLER)
    require(said, f"a pod with {every + 1} {device} was accepted, and the cluster has {every}")
    require("exceeded quota" in said or "maximum" in said, f"refused for another reason: {said}")
    return said


def pod_security(run: Run) -> str:
    """A team's namespace refuses privileged pods."""
    pod = _pod(run.namespaces[0], "privileged", {})
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    said = _refusal(run, pod)
    require("PodSecurity" in said, f"a privileged pod: {said or 'accepted'}")
    return said


def restricted_pods(run: Run) -> str:
    """Every job's pods are accepted where Kubernetes' strictest Pod Security Standard is enforced."""
    label, name = "pod-security.kubernetes.io/enforce", "restricted-rehearsal"
    place = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {label: "restricted"}}}
    run.kubectl.apply([place])
    try:
        plain = _pod(name, "plain", {})
        require("restricted" in _refusal(run, plain), "a pod that says nothing was accepted")
        found: list[Manifest] = [
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": job, "namespace": name}, "spec": dict(template)}
            for job in jobs_of(run.config)
            for template in _templates(render(job, run.config)[-1])
        ]
        for pod in found:
            # The operators set it.
            pod["spec"] |= {"restartPolicy": "Never"}
            require(not (said := _refusal(run, pod)), f"{pod['metadata']['name']}: {said}")
        return f"{len(found)} kinds of pods"
    finally:
        run.kubectl.delete([place])


def _templates(value: Any) -> Iterator[Manifest]:
    """The pods' specs in a job."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for below in value.values():
            yield from _templates(below)


def directories(run: Run) -> str:
    """Every team's directory is its user's, no other team sees it, and nobody can claim another's volume."""
    settings, volumes = run.config.settings, run.pods.volumes
    owners = {run.teams[team.name]: team.uid for team in settings.namespaces}
    folders = {where: volumes.claim(where, CLAIM_NAME) for where in owners}
    for team in settings.namespaces:
        where = run.teams[team.name]
        folder = folders[where] if settings.teams else folders[where] / SHARED
        # Made by the job of the stack, whose pods really run here.
        found = until(lambda folder=folder, uid=team.uid: _belongs(folder, uid), _SECONDS)  # type: ignore[misc]
        require(found, f"{folder} is not of user {team.uid} alone")
    require(
        len(set(folders.values())) == len(folders), f"teams share a directory: {sorted(map(str, folders.values()))}"
    )
    for where, other in zip(run.namespaces, run.namespaces[1:], strict=False):
        _cannot_claim(run, where, (run.kubectl.get("pvc", CLAIM_NAME, other) or {})["spec"]["volumeName"])
    _cannot_claim(run, run.namespaces[0], "fsx-root")
    return ", ".join(f"{where}: user {uid}" for where, uid in owners.items())


def _belongs(folder: Path, uid: int) -> bool:
    if not folder.is_dir():
        return False
    found = folder.stat()
    return (found.st_uid, found.st_gid, found.st_mode & 0o777) == (uid, uid, 0o770)


def _cannot_claim(run: Run, namespace: str, volume: str) -> None:
    spec: Manifest = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": volume}
    spec |= {"resources": {"requests": {"storage": "1Gi"}}}
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    claim: Manifest = {**kind, "metadata": {"name": "others", "namespace": namespace}, "spec": spec}
    run.kubectl.apply([claim])
    try:
        time.sleep(_STILL_SECONDS)
        found = run.kubectl.get("pvc", "others", namespace) or {}
        require(found["status"]["phase"] == "Pending", f"{namespace} claimed volume {volume}")
    finally:
        run.kubectl.delete([claim])


def external_addresses(run: Run) -> str:
    """Nobody may create a Service with addresses of others, not even an administrator; others are accepted."""
    plain: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "external", "namespace": run.namespaces[0]},
        "spec": {"ports": [{"port": 443}]},
    }
    external = {**plain, "spec": {**plain["spec"], "externalIPs": ["192.0.2.1"]}}
    # The API server needs a moment until it applies a new policy.
    require(until(lambda: bool(_refusal(run, external)), _SECONDS), "a Service with externalIPs was accepted")
    run.kubectl.apply([plain])
    try:
        said = _refusal(run, external)
        require(EXTERNAL_IPS in said, f"an update that adds externalIPs: {said or 'accepted'}")
        return said
    finally:
        run.kubectl.delete([plain])


def network_policies(run: Run) -> str:
    """Every training namespace denies traffic by default, and lets its pods reach each other and DNS, and not Lustre.

    Nothing on this machine enforces policies. The check reads them from the API server, as the VPC CNI would.
    """
    if not run.config.settings.charts.network_policies:
        require(not run.kubectl.list("networkpolicies"), "there are policies, and the stack wants none")
        return "the stack wants none, and there is none"
    for namespace in run.namespaces:
        policies = [one["spec"] for one in run.kubectl.list("networkpolicies", namespace=namespace)]
        whole = [spec for spec in policies if not spec.get("podSelector")]
        kinds = {kind for spec in whole for kind in spec.get("policyTypes", [])}
        require(kinds >= {"Ingress", "Egress"}, f"{namespace}: no policy for all pods, both ways (has {sorted(kinds)})")
        out = [rule for spec in whole for rule in spec.get("egress", [])]
        inward = [rule for spec in whole for rule in spec.get("ingress", [])]
        ports = {port.get("port") for rule in out for port in rule.get("ports", [])}
        require(_DNS in ports, f"{namespace}: pods cannot ask DNS")
        require(_LUSTRE not in ports, f"{namespace}: pods can speak Lustre's protocol, past their volumes")
        require(
            any(_among_themselves(rule.get("to", [])) for rule in out), f"{namespace}: pods cannot reach each other"
        )
        require(
            any(_among_themselves(rule.get("from", [])) for rule in inward), f"{namespace}: nor be reached by others"
        )
        require(all(rule.get("from") for rule in inward), f"{namespace}: anybody may reach its pods")
    return f"in {', '.join(run.namespaces)}: declared, and not enforced here"


def _among_themselves(peers: list[Manifest]) -> bool:
    """Whether these peers include every pod of the same namespace."""
    return any(peer.get("podSelector") == {} and "namespaceSelector" not in peer for peer in peers)


def _refusal(run: Run, document: Manifest, user: str = "") -> str:
    """Why the API server refuses an object (of a user), or empty if it accepts it."""
    try:
        run.kubectl.apply([document], dry_run=True, user=user)
    except Refused as refused:
        # Warnings about what is allowed but discouraged come first.
        return next((line for line in str(refused).splitlines() if line.startswith("Error")), str(refused))
    return ""


def _pod(namespace: str, name: str, resources: Manifest) -> Manifest:
    container = {
        "name": "main",
        "image": "image.invalid/none",
        "resources": {"limits": {"cpu": "1", "memory": "1Gi", **{key: str(value) for key, value in resources.items()}}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container]},
    }
