"""``validate``: is the cluster as configured? Read-only; a failed check never changes or destroys anything."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError
from hyperpod_node.health.kubernetes import COMPLETE, INCOMPLETE, SETUP

from components.catalogue.accelerators import EFA_RESOURCE
from components.common.names import CLUSTER_ID_TAG
from components.config import InstanceGroup

from ..failures import Exit, Failure, bad_input, described
from ..jobs import run as job_run
from ..jobs.choices import Choices
from ..jobs.render import render
from ..jobs.requests import JobError
from ..target import Target
from . import every_node, sessions
from . import nodes as cluster_nodes
from .network_state import DIRECTIONS, open_to_itself, route_table_of, why_public
from .node import Node
from .sessions import Remote

Result = Literal["PASS", "FAIL", "UNKNOWN"]
# States in which a node takes jobs, or will when its own are done (sinfo's manual, node state codes). A suffix + means
# a completing job and - a planned one; all other suffixes mean a node that is going away.
_UP = re.compile(r"(idle|mixed|allocated|completing|planned|reserved)[+-]?")
# Amazon FSx API Reference, FileSystem, Lifecycle: one that grows is UPDATING meanwhile.
_SERVING = ("AVAILABLE", "UPDATING")
# What HyperPod puts before the instance id in the name of a Kubernetes node.
_NODE_PREFIX = "hyperpod-"
_JOB, _JOB_SECONDS = "device-check", 900
# Until the pods of a deleted job are gone: Kubernetes gives them 30 s to end (Pod v1, terminationGracePeriod).
_GONE_SECONDS = 120
_NODE_CHECK = "sudo -n /opt/hyperpod/bin/hyperpod-validate --json"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check. ``detail`` is what was seen; ``hint`` says where to look after a failure."""

    name: str
    result: Result
    detail: str
    hint: str = ""


class Validation:
    """The checks of one cluster. Each yields one result for each thing it looked at."""

    def __init__(self, target: Target, *, run_jobs: bool = False) -> None:
        self._target, self._aws, self._run_jobs = target, target.aws, run_jobs

    def run(self) -> list[Check]:
        """Run every check. What cannot be asked is UNKNOWN, and the next check runs."""
        results: list[Check] = []
        on_nodes = self.kubernetes if self._target.on_eks else self.slurm
        checks: tuple[tuple[str, Callable[[], Iterator[Check]]], ...] = (
            ("cluster", self.cluster),
            ("nodes", self.counts),
            ("subnet", self.subnet),
            ("security groups", self.security_groups),
            ("file system", self.file_system),
            ("scheduler", on_nodes),
            ("in pods", self.in_pods) if self._target.on_eks else ("on the nodes", self.each_node),
        )
        for name, check in checks:
            try:
                results += list(check())
            except (Failure, ClientError, BotoCoreError) as error:
                results.append(_not_asked(name, error, self._target.stack))
        return results

    @cached_property
    def _nodes(self) -> list[Node]:
        return cluster_nodes.list_nodes(self._target)

    @property
    def _network(self) -> dict[str, Any]:
        return dict(self._target.cluster["VpcConfig"])

    def cluster(self) -> Iterator[Check]:
        """The cluster is InService."""
        status = self._target.cluster["ClusterStatus"]
        detail = f"{status} {self._target.cluster.get('FailureMessage', '')}".strip()
        yield _check("cluster in service", status == "InService", detail, f"hyperpod errors {self._target.stack}")

    def counts(self) -> Iterator[Check]:
        """Each group has as many running nodes as configured."""
        running = Counter(node.group for node in self._nodes if node.status == "Running")
        for group in self._target.config.instance_groups:
            found, wanted = running[group.name], group.wanted(running[group.name])
            others = [f"{n.name} {n.status}" for n in self._nodes if n.group == group.name and n.status != "Running"]
            detail = f"{found} of {wanted} running" + (f"; {', '.join(others)}" if others else "")
            hint = f"hyperpod node list {self._target.stack}; hyperpod errors {self._target.stack}"
            yield _check(f"{group.role} nodes of {group.name}", found == wanted, detail, hint)
        known = {group.name for group in self._target.config.instance_groups}
        for name in sorted(running.keys() - known):
            yield _check(f"group {name}", False, "the configuration does not have it", "deploy the stack again")

    def subnet(self) -> Iterator[Check]:
        """No node can be reached from the internet."""
        ids = self._network["Subnets"]
        client = self._aws.client("ec2")
        for subnet in client.describe_subnets(SubnetIds=ids)["Subnets"]:
            public = why_public(subnet, route_table_of(client, subnet)["Routes"])
            yield _check(
                f"subnet {subnet['SubnetId']} private",
                not public,
                public or "private",
                "nodes belong in a private subnet",
            )

    def security_groups(self) -> Iterator[Check]:
        """The nodes' group allows all traffic to and from itself: EFA does not work without it."""
        ids = set(self._network["SecurityGroupIds"])
        groups = self._aws.client("ec2").describe_security_groups(GroupIds=sorted(ids))["SecurityGroups"]
        for way in DIRECTIONS:
            good = open_to_itself(groups, way)
            detail = f"{good[0]} to itself" if good else f"none of {', '.join(sorted(ids))} allows itself"
            yield _check(
                f"nodes to nodes, {way}", bool(good), detail, "a rule for all traffic from the group to itself"
            )

    def file_system(self) -> Iterator[Check]:
        """The file system that the nodes look for exists and is available."""
        tag = {"Key": CLUSTER_ID_TAG, "Value": self._target.names.cluster_id}
        systems = list(self._aws.pages("fsx", "describe_file_systems", "FileSystems"))
        ours = [one for one in systems if tag in one.get("Tags", [])]
        settings = self._target.config.settings
        if existing := settings.fsx.file_system_id:
            found = [one for one in systems if one["FileSystemId"] == existing]
            missing, hint = f"there is no {existing}", "hyperpod:fsx.fileSystemId"
        else:
            found = [one for one in ours if one.get("FileSystemType") != "OPENZFS"]
            missing, hint = "none has the stack's tag", "nodes find it by the tag hyperpod:cluster-id"
        states = ", ".join(f"{one['FileSystemId']} {one['Lifecycle']}" for one in found) or missing
        good = len(found) == 1 and found[0]["Lifecycle"] in _SERVING
        yield _check("FSx for Lustre", good, states, hint)
        if home := settings.fsx.home_file_system_id:
            states = ", ".join(f"{s['Lifecycle']} in {s['VpcId']}" for s in systems if s["FileSystemId"] == home)
            good = states in [f"{state} in {settings.network.vpc_id}" for state in _SERVING]
            yield _check("home file system", good, states or f"there is no {home}", "hyperpod:fsx.homeFileSystemId")

        if settings.fsx.home_storage_gib:
            homes = [one["Lifecycle"] for one in ours if one.get("FileSystemType") == "OPENZFS"]
            good = len(homes) == 1 and homes[0] in _SERVING
            yield _check("home file system", good, ", ".join(homes) or "none has the stack's tag", "hyperpod deploy")

    def slurm(self) -> Iterator[Check]:
        """Slurm sees every worker with all its accelerators."""
        controller = cluster_nodes.controller(self._nodes)
        ran = sessions.run_remote(self._target, controller, "sinfo --noheader --Node --format='%N|%T|%G'", timeout=60)
        if ran.code != 0:
            raise Failure(f"sinfo ended with {ran.code}: {ran.output.strip()}")
        seen = {}
        for line in ran.output.splitlines():
            name, state, gres = [*line.strip().split("|"), "", ""][:3]
            seen[name] = (state, _gres(gres))
        for node, wanted in self._workers():
            state, number = seen.get(node.hostname, ("not there", 0))
            up = _UP.fullmatch(state) is not None
            detail = f"{state}, {number} of {wanted} accelerators"
            yield _check(f"Slurm sees {node.name}", up and number == wanted, detail, "scontrol show node; sinfo -R")

    def kubernetes(self) -> Iterator[Check]:
        """Kubernetes sees every worker ready, with all its devices, and no node without an instance."""
        listed = cluster_nodes.kubernetes(self._target).nodes()
        items = {str(item["metadata"]["name"]).removeprefix(_NODE_PREFIX): item for item in listed}
        resource = self._target.config.accelerator.kubernetes_resource
        groups = {group.name: group for group in self._target.config.worker_groups}
        for node, wanted in self._workers():
            item = items.get(node.instance_id)
            if item is None:
                yield _check(f"Kubernetes sees {node.name}", False, "not there", "kubectl get nodes")
                continue
            conditions: list[dict[str, str]] = item["status"].get("conditions", [])
            ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
            has = item["status"]["allocatable"]
            number, efa = int(has.get(resource, 0)), int(has.get(EFA_RESOURCE, 0))
            detail = f"{'Ready' if ready else 'NotReady'}, {number} of {wanted} accelerators, {efa} EFA interfaces"
            kind = groups[node.group].type_of(node.instance_type)
            enough = kind.efa != "yes" or efa == kind.efa_interfaces
            hint = "the device plugins: kubectl get daemonsets --all-namespaces"
            yield _check(f"Kubernetes sees {node.name}", ready and number == wanted and enough, detail, hint)
            yield from self._set_up(node, item["metadata"])
        # Nodes of an own node group have names of another form (assumption eks-node-names).
        known = {node.instance_id for node in self._nodes}
        for name in sorted(str(one["metadata"]["name"]) for one in listed):
            if name.startswith(_NODE_PREFIX) and name.removeprefix(_NODE_PREFIX) not in known:
                hint = f"where it stays NotReady, its pods stay with it: kubectl delete node {name}"
                yield _check(f"Kubernetes node {name}", False, "HyperPod has no such instance", hint)

    def _set_up(self, node: Node, metadata: Mapping[str, Any]) -> Iterator[Check]:
        """What the node says of its own boot, unless all is well (hyperpod_node/health/kubernetes.py)."""
        state, stack = (metadata.get("labels") or {}).get(SETUP), self._target.stack
        name = f"set-up of {node.name}"
        if state == INCOMPLETE:
            missing = (metadata.get("annotations") or {}).get(SETUP, "")
            probe = f"hyperpod assumptions {stack} --id eks-data-volume; " if "pod-disk" in missing else ""
            hint = f"docs/health.md#set-up; hyperpod node replace {stack} {node.name} runs the scripts again"
            yield _check(name, False, missing, probe + hint)
        elif state != COMPLETE:
            detail, hint = "the node has not labelled itself", f"hyperpod node health {stack} says why"
            yield Check(name=name, result="UNKNOWN", detail=detail, hint=hint)

    def in_pods(self) -> Iterator[Check]:
        """Pods write to /fsx and see every device. Only a job can check that; it takes all devices of its nodes."""
        for group in self._target.config.training_groups:
            if not group.count:
                continue
            name = f"{_JOB} on {group.name}"
            by_hand = f"hyperpod job run {self._target.stack} {_JOB} --group {group.name}"
            if not self._run_jobs or group.follows_demand:
                more = f"Karpenter would add {group.count} nodes for it: " if group.follows_demand else ""
                hint = f"{more}{by_hand}" if more else f"validate --run-jobs, or {by_hand}"
                yield Check(name=name, result="UNKNOWN", detail="not run: /fsx and devices in pods", hint=hint)
                continue
            try:
                ended = self._job(group)
            except job_run.TimedOut as error:
                if error.queued:
                    detail = f"the nodes are busy, or no queue admits the job: {error.message}"
                    yield Check(name=name, result="UNKNOWN", detail=detail, hint=f"when nodes are free: {by_hand}")
                else:
                    yield _check(name, False, error.message, f"it was deleted; {by_hand} --keep keeps it")
            except Failure as error:
                yield _not_asked(name, error, self._target.stack)
            else:
                figures = f"{ended.figures.get('nodes_passed', 0):g} of {group.count} nodes"
                yield _check(
                    name, ended.passed, "; ".join(ended.reasons) or figures, f"its output: {by_hand}; kubectl events"
                )

    def _job(self, group: InstanceGroup) -> job_run.Result:
        """Run the job in the first team's namespace, then delete it."""
        api, config = cluster_nodes.kubernetes(self._target), self._target.config
        try:
            # Kubernetes' deadline is later than ours: a job that it ended while waiting for nodes would look failed.
            objects = render(_JOB, config, Choices(group=group.name), deadline=_JOB_SECONDS + 60)
        except JobError as error:
            raise bad_input(str(error)) from None
        job_run.check(api, objects, config)
        began = time.monotonic()
        try:
            job_run.submit(api, objects)
            ended, lines = job_run.follow(api, objects, lambda line: None, lambda phase: None, _JOB_SECONDS)
        finally:
            for document in reversed(objects):
                api.delete(document)
            # The next group's job has the same name.
            gone = time.monotonic() + _GONE_SECONDS
            while api.get(objects[-1]) is not None and time.monotonic() < gone:
                time.sleep(1)
        namespace, seconds = objects[-1]["metadata"]["namespace"], time.monotonic() - began
        return job_run.judge(_JOB, namespace, group, group.count, ended, lines, seconds)

    def each_node(self) -> Iterator[Check]:
        """Each node's own checks: boot, /fsx, MUNGE, Slurm, devices, EFA, commands."""
        running = [node for node in self._nodes if node.status == "Running"]
        found = every_node.answers(self._target, self._nodes, running, _NODE_CHECK, 300)
        for node, answer in zip(running, found, strict=True):
            yield from self._one_node(node, answer)

    def _one_node(self, node: Node, answer: Remote | Failure) -> list[Check]:
        if isinstance(answer, Failure):
            return [_not_asked(node.name, answer, self._target.stack)]
        try:
            found = json.loads(answer.output[answer.output.index("{") :])
        except ValueError:
            said = answer.output.strip().splitlines()[-1:] or ["nothing"]
            hint = "did on_create.sh run? see the node's log"
            return [_check(node.name, False, f"hyperpod-validate said: {said[0]}", hint)]
        run = f"hyperpod node exec {self._target.stack} {node.name}"
        hint = f"{run} -- sudo /opt/hyperpod/bin/hyperpod-validate"
        bad = [one for one in found["checks"] if not one["passed"]]
        if not bad:
            return [_check(node.name, True, ", ".join(one["name"] for one in found["checks"]))]
        return [_check(f"{node.name}: {one['name']}", False, one["detail"], hint) for one in bad]

    def _workers(self) -> Iterator[tuple[Node, int]]:
        """Running workers, and the number of accelerators of each by the catalogue."""
        types = {group.name: group.type for group in self._target.config.worker_groups}
        for node in self._nodes:
            if node.status == "Running" and node.group in types:
                yield node, types[node.group].accelerators


def _check(name: str, good: bool, detail: str, hint: str = "") -> Check:
    return Check(name=name, result="PASS" if good else "FAIL", detail=detail, hint="" if good else hint)


def _not_asked(name: str, error: Exception, stack: str) -> Check:
    """A check that could not finish: FAIL if the cluster is the cause, UNKNOWN if the way to it is."""
    failure = described(error, stack)
    result: Result = "FAIL" if failure.code is Exit.FAILED else "UNKNOWN"
    return Check(name=name, result=result, detail=failure.message, hint=failure.hint)


def _gres(text: str) -> int:
    """The number of accelerators in sinfo's %G: ``gpu:a100:8(S:0-1)`` or ``neuron:16``."""
    return sum(int(number) for number in re.findall(r"(?:gpu|neuron)(?::[^:,()]+)*?:(\d+)(?:\(|,|$)", text))


def worst(checks: Sequence[Check]) -> Exit:
    """The exit code of ``validate``."""
    results = {check.result for check in checks}
    return Exit.FAILED if "FAIL" in results else Exit.CANNOT_KNOW if "UNKNOWN" in results else Exit.GOOD
