"""Checks of a Kubernetes cluster's configuration. Every rule yields its own problems."""

from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Network

from ..catalogue import kubernetes_versions
from ..catalogue.accelerators import CATALOGUE
from ..catalogue.kubernetes_versions import DEFAULT_VERSION, KUBERNETES_VERSIONS
from ..catalogue.regions import Region
from ..schema.arns import partition_problems
from ..schema.problems import Problem
from ..workers.keys import SYSTEM_NODES, Taint
from ..workers.taints import open_groups
from .keys import DEFAULT_AUTHENTICATION_MODE, Charts, KubernetesKeys
from .pod_room import room_problems

# Each worker group is a flavor (Kueue 0.14, ClusterQueue, resourceGroups.flavors: maxItems).
_FLAVORS = 64
# CreateComputeQuota, Name; Kubernetes, labels and namespaces.
_NAME_LIMIT = 63
# The device plugins' DaemonSets of the HyperPod chart at 011ca927 name the instance types they run on: none that is
# newer, and not these.
_WITHOUT_DEVICE_PLUGIN = (
    "ml.trn2.3xlarge",
    *(name for name in CATALOGUE if name.startswith("ml.g4dn.")),
    *(name for name in CATALOGUE if name.startswith("ml.g7.")),
)
# SageMaker Developer Guide, "Set up managed tiered checkpointing": 20 to 100. Above 80, jobs would have less than a
# sixth of a node (`pod_resources`).
_CHECKPOINT_PERCENT = range(20, 81)
# The same DaemonSet's tolerations, which the chart's values cannot change.
_NEURON_TAINT = ("aws.amazon.com/neuron", "NoSchedule")
# Kubernetes' own namespaces, and those that the charts and EKS create.
_KUBERNETES_OWN = ("default", "kube-system", "kube-public", "kube-node-lease")
_OF_CHARTS = (
    "aws-hyperpod",
    "kubeflow",
    "mpi-operator",
    "kueue-system",
    "cert-manager",
    "hyperpod-observability",
    "mount-s3",
)
# Namespaces that components/kubernetes/teams/directories.py and node_health.py make.
_OWN = ("hyperpod-storage", "hyperpod-health")
# Namespaces that no team can have.
RESERVED = _KUBERNETES_OWN + _OF_CHARTS + _OWN


def kubernetes_problems(
    settings: KubernetesKeys, region: Region | None, *, closed: bool, metrics: bool
) -> Iterator[Problem]:
    """Yield every problem of the keys that only EKS has. ``closed``: the network is closed; ``metrics``: they are
    collected.
    """
    if settings.orchestrator != "eks":
        yield from _without_kubernetes(settings)
        return
    today, asked = kubernetes_versions.today(), KUBERNETES_VERSIONS.get(settings.kubernetes_version)
    if asked is None:
        there = [name for name, row in KUBERNETES_VERSIONS.items() if row.days_left(today) > 0]
        yield Problem(
            key="hyperpod:kubernetesVersion",
            what=f'"{settings.kubernetes_version}" is not supported',
            fix=f"one of {', '.join(there)} (in quotes, or YAML makes 1.30 a number)",
        )
    elif asked.days_left(today) <= 0:
        yield Problem(
            key="hyperpod:kubernetesVersion",
            what=f"EKS ended its support of {settings.kubernetes_version} on {asked.extended_support_until}",
            fix="a newer one; for an existing cluster the one `aws eks describe-cluster` shows, as EKS upgraded it",
        )
    yield from _api_cidrs(settings)
    yield from _roles(settings, region)
    yield from _teams(settings)
    yield from _charts(settings, closed=closed, metrics=metrics)
    yield from _groups(settings)
    yield from room_problems(settings)
    for name, times in Counter(group.name.lower() for group in settings.groups).items():
        if times > 1 and len({group.name for group in settings.groups if group.name.lower() == name}) > 1:
            yield Problem(
                key="hyperpod:workers",
                what=f'{times} groups are named "{name}" except for upper and lower case',
                fix="Kubernetes names are lower-case: names must differ in more than case",
            )


def _charts(settings: KubernetesKeys, *, closed: bool, metrics: bool) -> Iterator[Problem]:
    charts = settings.charts
    # The chart's deep-health-check makes aws-hyperpod, which is the training operator's namespace too (SageMaker
    # Developer Guide, "Installing the training operator").
    tenants = {
        "healthMonitoring": charts.health_monitoring,
        "jobAutoRestart": charts.job_auto_restart,
        "hyperpodTrainingOperator": charts.hyperpod_training_operator,
    }
    for key, needs in tenants.items():
        if needs and not charts.deep_health_check:
            yield Problem(
                key="hyperpod:charts.deepHealthCheck",
                what=f"{key} needs the namespace that comes with it",
                fix=f"leave it on, or set {key} to false too",
            )
    if charts.strict_network_policies and not charts.network_policies:
        yield Problem(
            key="hyperpod:charts.strictNetworkPolicies",
            what="without networkPolicies no pod would ever have a connection",
            fix="set networkPolicies to true too, or leave it out",
        )
    elif charts.strict_network_policies and charts.queues == "task-governance":
        yield Problem(
            key="hyperpod:charts.strictNetworkPolicies",
            what="task governance's pods have no policy, and so would have no connection",
            fix="queues kueue or none, or leave it out",
        )
    if charts.strict_network_policies and metrics:
        yield Problem(
            key="hyperpod:charts.strictNetworkPolicies",
            what="the pods that collect metrics have no policy, and so would have no connection",
            fix="leave one of it and observability.prometheus out",
        )
    if charts.strict_network_policies and charts.spaces:
        yield Problem(
            key="hyperpod:charts.strictNetworkPolicies",
            what="the pods that run notebooks' controller have no policy, and so would have no connection",
            fix="leave one of it and spaces out",
        )
    if charts.queues == "kueue" and len(settings.workers) > _FLAVORS:
        yield Problem(
            key="hyperpod:workers",
            what=f"{len(settings.workers)} groups, and a queue of Kueue takes {_FLAVORS} flavors",
            fix="fewer groups, or charts.queues none",
        )
    yield from _topology(settings)
    for key, needs in (("hyperpodTrainingOperator", charts.hyperpod_training_operator), ("spaces", charts.spaces)):
        if closed and needs:
            yield Problem(
                key=f"hyperpod:charts.{key}",
                what="cert-manager's images are in quay.io, which a closed network does not reach",
                fix="leave one of the two out",
            )
    yield from _checkpoint_memory(charts.checkpoint_memory_percent or 0, closed=closed)
    for number, group in enumerate(settings.groups):
        for key, name in group.keyed_types(f"hyperpod:workers[{number}]"):
            if name in _WITHOUT_DEVICE_PLUGIN or (group.accelerated and name not in CATALOGUE):
                yield Problem(
                    key=key,
                    what=f"the pinned HyperPod chart starts no device plugin on {name}",
                    fix="another type, or orchestrator slurm",
                )
    if settings.charts.neuron_scheduler and settings.accelerator != "trainium":
        yield Problem(
            key="hyperpod:charts.neuronScheduler",
            what="it places pods on NeuronCores, and there are none",
            fix="leave it out with accelerator gpu",
        )


def _topology(settings: KubernetesKeys) -> Iterator[Problem]:
    labelled = [
        row.name for row in CATALOGUE.values() if row.network_labels and row.accelerator == settings.accelerator
    ]
    if not settings.charts.topology:
        return
    if settings.charts.queues != "kueue":
        governed = settings.charts.queues == "task-governance"
        yield Problem(
            key="hyperpod:charts.topology",
            what="task governance brings its own topology" if governed else "only Kueue places jobs by it",
            fix="queues kueue, or leave it out",
        )
    if any(group.scaling == "demand" for group in settings.groups):
        # Kueue, "Topology Aware Scheduling": it assigns a job to nodes that are there.
        yield Problem(
            key="hyperpod:charts.topology",
            what="Kueue places jobs on nodes that are there, and so would never ask for those that follow demand",
            fix="leave it out, or scaling fixed for every group",
        )
    if not any(set(group.types) <= set(labelled) for group in settings.groups):
        yield Problem(
            key="hyperpod:charts.topology",
            what="HyperPod labels no node of these groups with its place in the network",
            fix=f"leave it out, or a group of {', '.join(labelled)}",
        )


def _checkpoint_memory(percent: int, *, closed: bool) -> Iterator[Problem]:
    key, allowed = "hyperpod:charts.checkpointMemoryPercent", _CHECKPOINT_PERCENT
    if percent and percent not in allowed:
        yield Problem(
            key=key,
            what=f"{percent} % of a node's memory",
            fix=f"{allowed[0]}, SageMaker's minimum, to {allowed[-1]}, so that jobs have memory too; 0 turns it off",
        )
    if percent and closed:
        yield Problem(
            key=key,
            what="the registry of its daemon is not published, so the endpoints of a closed network do not admit it",
            fix="leave it out, or network.egress open",
        )


def _groups(settings: KubernetesKeys) -> Iterator[Problem]:
    """Check the groups: the cluster's own pods run on worker nodes too, and some cannot be given tolerations."""
    if not open_groups(settings):
        yield Problem(
            key="hyperpod:workers",
            what="DNS, storage drivers, operators and queues have no nodes: every group is tainted or has none",
            fix=f"a group without accelerators and taints, as {SYSTEM_NODES} of ml.m5.xlarge; or one node in a group "
            "without NoSchedule and NoExecute taints",
        )
    for number, group in enumerate(settings.groups):
        if group.deep_health_checks and group.accelerated and group.taints:
            yield Problem(
                key=f"hyperpod:workers[{number}].taints",
                what="HyperPod does not accept taints together with deepHealthChecks",
                fix="leave one of the two out",
            )
        for taint in group.taints or ():
            if settings.accelerator == "trainium" and taint.repels and not _neuron_tolerates(taint):
                yield Problem(
                    key=f"hyperpod:workers[{number}].taints",
                    what=f"the Neuron device plugin does not tolerate {taint.key}:{taint.effect}",
                    fix=f"the one it tolerates, {':'.join(_NEURON_TAINT)}",
                )


def _neuron_tolerates(taint: Taint) -> bool:
    return (taint.key, taint.effect) == _NEURON_TAINT


def _without_kubernetes(settings: KubernetesKeys) -> Iterator[Problem]:
    given = {
        "teams": bool(settings.teams),
        "charts": settings.charts != Charts(),
        "administratorRoleArns": bool(settings.administrator_role_arns),
        "kubernetesVersion": settings.kubernetes_version != DEFAULT_VERSION,
        "kubernetesApiCidrs": bool(settings.kubernetes_api_cidrs),
        "authenticationMode": settings.authentication_mode != DEFAULT_AUTHENTICATION_MODE,
    }
    for key, present in given.items():
        if present:
            yield Problem(key=f"hyperpod:{key}", what="is for EKS", fix="leave it out with orchestrator slurm")


def _api_cidrs(settings: KubernetesKeys) -> Iterator[Problem]:
    key, fix = "hyperpod:kubernetesApiCidrs", "`curl https://checkip.amazonaws.com` prints your address: ADDRESS/32"
    for text in settings.kubernetes_api_cidrs:
        try:
            block = IPv4Network(text)
        except ValueError as error:
            yield Problem(key=key, what=str(error), fix=fix)
            continue
        if "/" not in text:
            yield Problem(key=key, what=f'"{text}" is an address, not a block', fix=f"{text}/32 is that address alone")
        elif not is_public(block):
            yield Problem(key=key, what=f"{text} is not public, and EKS refuses it", fix=fix)


def is_public(block: IPv4Network) -> bool:
    """Whether EKS accepts the block for its public endpoint: InvalidParameterException, "The following CIDRs are not
    allowed in publicAccessCidrs", is its answer to private ranges and to those for documentation.
    """
    return block.prefixlen == 0 or block.is_global


def _roles(settings: KubernetesKeys, region: Region | None) -> Iterator[Problem]:
    named = [("hyperpod:administratorRoleArns", arn) for arn in settings.administrator_role_arns]
    named += [(f"hyperpod:teams[{n}].roleArns", arn) for n, team in enumerate(settings.teams) for arn in team.role_arns]
    for key, arn in named:
        yield from partition_problems(key, arn, region)
    for arn, times in Counter(arn for _, arn in named).items():
        if times > 1:
            yield Problem(
                key="hyperpod:teams",
                what=f"{arn} is named {times} times",
                fix="EKS has one access entry for each role: name it once",
            )


def _teams(settings: KubernetesKeys) -> Iterator[Problem]:
    for name, times in Counter(team.name for team in settings.teams).items():
        if times > 1:
            yield Problem(key="hyperpod:teams", what=f'{times} teams are named "{name}"', fix="names must differ")
    for number, team in enumerate(settings.teams):
        key = f"hyperpod:teams[{number}]"
        if settings.charts.queues == "task-governance" and (limit := _longest_team(settings)) < len(team.name):
            yield Problem(
                key=f"{key}.name",
                what=f'"{team.name}" has {len(team.name)} characters',
                fix=f"at most {limit} with task governance, where namespace and quota carry it",
            )
        if settings.charts.queues != "task-governance" and team.fair_share_weight is not None:
            yield Problem(
                key=f"{key}.fairShareWeight",
                what=f"charts.queues is {settings.charts.queues}, which has no weights",
                fix="leave it out, or set charts.queues to task-governance",
            )
        for bucket, times in Counter(bucket.name for bucket in team.buckets).items():
            if times > 1:
                yield Problem(
                    key=f"{key}.buckets",
                    what=f"{bucket} is named {times} times, and there is one claim for each bucket",
                    fix="once, with a prefix that contains all folders or without one",
                )
        if team.name in RESERVED:
            yield Problem(
                key=f"{key}.name",
                what=f'"{team.name}" is taken by Kubernetes, a chart or this program',
                fix="another name",
            )
    users: dict[int, str] = {}
    for number, team in enumerate(settings.teams):
        if (other := users.setdefault(team.uid, team.name)) != team.name:
            yield Problem(
                key=f"hyperpod:teams[{number}].name",
                what=f'"{team.name}" and "{other}" get the same user id, {team.uid}, which is derived from the name',
                fix="another name for the newer one",
            )
    claimed = sum(team.accelerators or 0 for team in settings.teams)
    # Without any node nobody gets the guaranteed devices, but the guarantees are not the cause.
    if claimed > (there := _accelerators(settings)) > 0:
        yield Problem(
            key="hyperpod:teams",
            what=f"the teams are guaranteed {claimed} accelerators and the workers have {there}",
            fix="guarantee less, or add workers",
        )


def _longest_team(settings: KubernetesKeys) -> int:
    """Return the maximum length of a team's name with task governance, which makes a namespace's and a quota's name of
    it.
    """
    others = (settings.namespace_of(""), quota_name(settings.cluster_name, ""))
    return _NAME_LIMIT - max(map(len, others))


def quota_name(cluster: str, team: str) -> str:
    """Return the name of a team's compute quota."""
    return f"{cluster}-{team}"


def _accelerators(settings: KubernetesKeys) -> int:
    """Count the devices of all worker groups; unknown instance types count as none."""
    rows = [(CATALOGUE.get(group.instance_type), settings.count_of(group)) for group in settings.groups]
    return sum(row.accelerators * max(count, 0) for row, count in rows if row)
