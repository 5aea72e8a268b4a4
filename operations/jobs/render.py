"""Jobs for a Kubernetes cluster, rendered for the stack's own nodes from the templates in ``jobs/eks``."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from components.common.documents import load_all
from components.config import Config, InstanceGroup
from components.kubernetes.helm import NEURON_SCHEDULER
from components.kubernetes.keys import Charts
from components.kubernetes.metrics_scraper import PORT, PORT_NAME
from components.kubernetes.node_placement import GROUP_LABEL, NETWORK_LAYERS
from components.kubernetes.pod_environment import config_map_name, nccl_network
from components.kubernetes.pod_resources import efa_interfaces, pod_request, tolerations
from components.kubernetes.storage import CLAIM_NAME, DATA_CLAIM, bucket_claim
from components.kubernetes.teams.queues import LOCAL_QUEUE, PRIORITY_LABEL, QUEUE_LABEL

from .choices import DEFAULTS, Choices
from .specs import IMAGE_ARCHITECTURE, NAME_LABEL, SCRATCH, TOKEN_KEY, TOKEN_SECRET, Job, Plan, templates
from .specs import JOBS as SPECS

ROOT = Path(__file__).parents[2]
JOBS: tuple[str, ...] = tuple(SPECS)
# Of the classes that `hyperpod apply` makes (operations/kubernetes/governance.py).
GOVERNED_PRIORITY = "normal"
# SageMaker Developer Guide, "Automatically resuming a job after a node failure": on a replaced node, so often.
_AUTO_RESUME = {
    "sagemaker.amazonaws.com/enable-job-auto-resume": "true",
    "sagemaker.amazonaws.com/job-max-retry-count": "10",
}
# Karpenter, "Disruption": it removes no node under such a pod, whatever the pool's policy and budgets allow.
_STAYS = {"karpenter.sh/do-not-disrupt": "true"}
# Files that its pods see in the place of the image's own: the job's user, and for MPI how ssh runs without root.
_SYSTEM_FILES = {
    "passwd": "/etc/passwd",
    "ssh_config": "/etc/ssh/ssh_config",
    "sshd_config": "/etc/ssh/sshd_config",
}
# Kueue, "Topology Aware Scheduling": all pods below one node of a layer, or else of the layer above it and so on.
_PREFERRED, _REQUIRED = "kueue.x-k8s.io/podset-preferred-topology", "kueue.x-k8s.io/podset-required-topology"
# What a template makes; most make what "" does.
_KINDS = {
    "device-check": ("batch/v1", "Job"),
    "mpi": ("kubeflow.org/v2beta1", "MPIJob"),
    "hyperpod": ("sagemaker.amazonaws.com/v1", "HyperPodPyTorchJob"),
    "": ("kubeflow.org/v1", "PyTorchJob"),
}
_HOME = {"name": "HOME", "value": SCRATCH}
_POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
# lifecycle/training/training_report.py.
_REPORTS = [
    {"name": "HYPERPOD_TRAINING_REPORTS", "value": f"{SCRATCH}/training-reports"},
    {"name": "HYPERPOD_TRAINING_PORT", "value": str(PORT)},
]
# PyTorchJob's default port.
_PORT = "23456"
# Half of the memory that the pod asks for may be shared memory; it counts towards the pod's own limit.
_SHARED_MEMORY_SHARE = 0.5


def resumes(namespace: str) -> bool:
    """Whether HyperPod resumes jobs there (SageMaker Developer Guide, "Running jobs using the SageMaker HyperPod CLI").

    Elsewhere only the training operator starts their pods again.
    """
    return namespace == "kubeflow" or namespace.startswith("hyperpod")


class JobError(ValueError):
    """A job that cannot run on this cluster; ``problems`` lists everything that is wrong, with its fix."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


def jobs_of(config: Config) -> tuple[str, ...]:
    """The jobs that this cluster's accelerator can run."""
    return tuple(name for name, job in SPECS.items() if config.settings.accelerator in job.images)


def render(
    name: str,
    config: Config,
    choices: Choices = DEFAULTS,
    *,
    deadline: float | None = None,
    collective: str = "all_reduce",
    job: Job | None = None,
    files: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """The objects of a job, ready to apply, in order: first what the others refer to.

    ``deadline`` is in seconds: then Kubernetes ends a test, by default after the job's own; training has none.
    ``collective`` is the one that a bandwidth test measures. A ``job`` that is not one of this project's brings its
    ``files``, by name. Raises JobError.
    """
    job, settings = job or known(name, config), config.settings
    namespace = choices.namespace
    if namespace is None:
        namespace = settings.namespace_of(settings.namespaces[0].name)
    workers, problems = find_group(config, choices.group)
    nodes = workers.count if choices.nodes is None else choices.nodes
    devices, efa, image = choices.devices, choices.efa, choices.image
    problems += request_problems(name, job, config, workers, nodes, devices)
    problems += _problems(config, workers, namespace, efa)
    problems += _bucket_problems(config, namespace, choices.buckets or ())
    problems += _placement_problems(config, workers, choices)
    problems += _operator_problems(name, job, config, workers, choices)
    problems += _elastic_problems(name, job, config, workers, nodes, choices)
    variables = assignments(choices.env, problems)
    if choices.user:
        problems.append("--user is for Slurm; pods run as their team's user, and --namespace names the team")
    if not image and workers.type.architecture != IMAGE_ARCHITECTURE:
        problems.append(
            f"the jobs' images are for x86-64 and {workers.type.name} is not: pass your own, "
            f"hyperpod job run {name} --image"
        )
    if not image and settings.accelerator in job.images:
        image = job.image(settings.accelerator, config.region)
    problems += _image_problems(config, image)
    if problems:
        raise JobError(problems)
    template = job.template
    if choices.operator == "hyperpod":
        template = "hyperpod"
    elif choices.min_nodes:
        template = "growing"
    count = devices or workers.type.accelerators
    cores = workers.type.neuron_cores * count // workers.type.accelerators
    processes = cores if workers.type.accelerator == "trainium" and job.template != "device-check" else count
    network = nccl_network(workers, nodes, efa_interfaces(workers) if efa is None else efa)
    plan = Plan(
        name=name,
        group=workers,
        nodes=nodes,
        processes=processes,
        least=choices.min_nodes or 0,
        command={"hyperpod": "hyperpodrun", "growing": "growing"}.get(template, ""),
        arguments=choices.arguments,
        network=network,
        collective=collective,
    )
    team = next(one for one in settings.namespaces if settings.namespace_of(one.name) == namespace)
    # Trainers tell of themselves where somebody reads it.
    told = bool(job.scripts) and settings.observability.scraper != "none"
    system_files = dict(_SYSTEM_FILES if job.template == "mpi" else {"passwd": _SYSTEM_FILES["passwd"]})
    labels = {NAME_LABEL: name, **({GROUP_LABEL: workers.name} if told else {})}
    placed = {**_near(config, workers, choices), **(_STAYS if workers.follows_demand else {})}
    text = (
        templates()
        .get_template(f"{template}.yaml.j2")
        .render(
            name=name,
            nodes=nodes,
            least=plan.least,
            progress=job.progress,
            image=image,
            command=job.on_eks(plan),
            node=_node(workers, processes, devices, efa, settings.charts),
            labels=labels,
            metadata={"labels": labels, **({"annotations": placed} if placed else {})},
            reports=PORT_NAME if told else "",
            reports_port=PORT,
            env=[
                _HOME,
                *(_REPORTS if told else []),
                *(_token() if job.token else []),
                *([{"name": "NCCL_NET", "value": network}] if network else []),
                *(_rank(name) if template in ("pytorch", "growing") else []),
                *([_POD_IP] if template == "growing" else []),
                *({"name": key, "value": value} for key, value in variables.items()),
            ],
            files=(brought := f"{name}-files"),
            scripts=bool(job.scripts or files),
            system_files=system_files,
            scratch=SCRATCH,
            identity=_identity(team.uid),
            claim=CLAIM_NAME,
            buckets={f"s3-{number}": bucket for number, bucket in enumerate(choices.buckets or ())},
            bucket_claim=bucket_claim,
            # Without teams it is a folder of the file system's root.
            data=DATA_CLAIM if settings.teams and settings.fsx.linked_bucket else "",
            scheduler=NEURON_SCHEDULER if settings.charts.neuron_scheduler else "",
            deadline=math.ceil(deadline or job.deadline or 0),
        )
    )
    objects = load_all(text)
    data = {Path(path).name: (ROOT / path).read_text(encoding="utf-8") for path in job.scripts}
    data |= {**(files or {}), **{file: _system_file(file, team.uid) for file in system_files}}
    objects.insert(0, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": brought}, "data": data})
    for document in objects:
        metadata = document["metadata"]
        metadata["namespace"] = namespace
        metadata["labels"] = {NAME_LABEL: name}
        if document["kind"] == "PyTorchJob" and settings.charts.job_auto_restart:
            metadata["annotations"] = dict(_AUTO_RESUME)
    if settings.charts.queues == "kueue":
        objects[-1]["metadata"]["labels"][QUEUE_LABEL] = LOCAL_QUEUE
        if template == "growing":
            _in_order(objects)
    if settings.charts.queues == "task-governance":
        # SageMaker Developer Guide, "Example HyperPod task governance commands": the queue it makes for a team, and the
        # class, without which a task has the rank 0 and is not in the dashboard.
        queued = {QUEUE_LABEL: f"{namespace}-localqueue", PRIORITY_LABEL: f"{GOVERNED_PRIORITY}-priority"}
        objects[-1]["metadata"]["labels"] |= queued
    return objects


def _in_order(objects: list[dict[str, Any]]) -> None:
    """Queue an elastic job before its further nodes, which go first where others need theirs."""
    *others, job = objects
    job["metadata"]["labels"][PRIORITY_LABEL] = "normal"
    for one in others:
        if one["kind"] == "Job":
            one["metadata"]["labels"] |= {QUEUE_LABEL: LOCAL_QUEUE, PRIORITY_LABEL: "low"}


def standing(name: str, config: Config, namespace: str | None = None) -> list[list[dict[str, Any]]]:
    """What may have been submitted under a name, in so far as to find or delete it: its files, then the job itself, of
    each operator that the stack has.

    Raises JobError where the stack has no such namespace, by default the first team's.
    """
    settings = config.settings
    namespaces = [settings.namespace_of(team.name) for team in settings.namespaces]
    if namespace not in (None, *namespaces):
        raise JobError([_no_namespace(namespace or "", namespaces)])
    possible = [_KINDS.get(SPECS[name].template if name in SPECS else "", _KINDS[""])]
    if possible == [_KINDS[""]]:
        possible = [kind for kind in (_KINDS["hyperpod"], *possible) if kind in kinds(config)]
    return [
        [
            {"apiVersion": of, "kind": kind, "metadata": {"name": called, "namespace": namespace or namespaces[0]}}
            for of, kind, called in (("v1", "ConfigMap", f"{name}-files"), (version, kind, name))
        ]
        for version, kind in possible
    ]


def kinds(config: Config) -> list[tuple[str, str]]:
    """API version and kind of everything that can run here, by the operators that the stack has."""
    charts = config.settings.charts
    there = {
        "device-check": True,
        "mpi": charts.mpi_operator,
        "hyperpod": charts.hyperpod_training_operator,
        "": charts.training_operator,
    }
    return [kind for template, kind in _KINDS.items() if there[template]]


def _no_namespace(namespace: str, there: Sequence[str]) -> str:
    return f'the stack has no namespace "{namespace}" (hyperpod:teams); it has {", ".join(there)}'


def known(name: str, config: Config) -> Job:
    """This project's job of that name. Raises JobError."""
    if name not in SPECS:
        raise JobError([f'there is no job "{name}"; this cluster can run {", ".join(jobs_of(config))}'])
    return SPECS[name]


def find_group(config: Config, name: str | None) -> tuple[InstanceGroup, list[str]]:
    """The worker group of that name, by default the first with accelerators, and what is wrong with the name."""
    groups = {group.name: group for group in config.training_groups}
    first = config.training_groups[0]
    if name is None or name in groups:
        return groups.get(name or "", first), []
    here = f"the stack trains on {', '.join(groups)}"
    if name in {group.name for group in config.worker_groups}:
        return first, [f"group {name} has no accelerators; {here}"]
    return first, [f'there is no worker group "{name}"; {here}']


def assignments(given: Sequence[str] | None, problems: list[str]) -> dict[str, str]:
    """The variables that NAME=VALUE words set. Adds what is wrong with them to ``problems``."""
    split = [word.partition("=") for word in given or ()]
    problems += [f"--env {name}{sign}: NAME=VALUE" for name, sign, _ in split if not (sign and name.isidentifier())]
    return {name: value for name, _, value in split}


def request_problems(
    name: str, job: Job, config: Config, group: InstanceGroup, nodes: int, devices: int | None
) -> list[str]:
    """What is wrong with a request whatever schedules it, before the cluster is asked."""
    row, problems = group.type, []
    if config.settings.accelerator not in job.images:
        problems.append(f"{name} is for {' and '.join(job.images)}; here are {', '.join(jobs_of(config))}")
    if not group.count:
        problems.append(f"group {group.name} has no nodes now; hyperpod scale STACK {group.name} NUMBER")
    elif not 1 <= nodes <= group.count:
        problems.append(f"{nodes} nodes of group {group.name}, which has {group.count}; ask for 1 to {group.count}")
    if devices is not None and not 1 <= devices <= row.accelerators:
        problems.append(f"{devices} devices a node; {row.name} has {row.accelerators}, ask for 1 to {row.accelerators}")
    return problems


def _operator_problems(name: str, job: Job, config: Config, group: InstanceGroup, choices: Choices) -> list[str]:
    """What is wrong with whom the request wants to run it."""
    charts, problems = config.settings.charts, []
    if choices.operator == "kubeflow":
        if job.operator and not getattr(charts, job.operator):
            key = {"mpi_operator": "mpiOperator", "training_operator": "trainingOperator"}[job.operator]
            problems.append(f"{name} needs hyperpod:charts.{key}, which is false; set it to true and run `pulumi up`")
        return problems
    if not charts.hyperpod_training_operator:
        problems.append(
            "--operator hyperpod needs hyperpod:charts.hyperpodTrainingOperator; set it to true and run `pulumi up`"
        )
    if job.operator != "training_operator":
        problems.append(f"--operator hyperpod runs training; {name} is none")
    if group.type.accelerator != "gpu":
        problems.append(f"--operator hyperpod: AWS names no Trainium type for it, such as {group.type.name}")
    if not choices.image:
        problems.append(
            "--operator hyperpod needs an image with hyperpod-elastic-agent, which AWS's public ones lack: --image"
        )
    return problems


def _elastic_problems(
    name: str, job: Job, config: Config, group: InstanceGroup, nodes: int, choices: Choices
) -> list[str]:
    """What is wrong with a range of nodes."""
    charts, least, problems = config.settings.charts, choices.min_nodes, []
    if least is None:
        return []
    if not 1 <= least < nodes:
        problems.append(f"--min-nodes {least} of {nodes} nodes; an elastic job has fewer at first, and 1 at least")
    if not job.elastic:
        others = ", ".join(one for one in jobs_of(config) if SPECS[one].elastic)
        problems.append(f"--min-nodes: {name} cannot go on with other nodes; {others or 'scripts of yours'} can")
    if choices.operator == "hyperpod":
        # SageMaker Developer Guide, "Using elastic training in Amazon SageMaker HyperPod", other features.
        if charts.checkpoint_memory_percent:
            problems.append("--min-nodes: HyperPod's elastic jobs know no hyperpod:charts.checkpointMemoryPercent")
        if group.worker and group.worker.capacity == "spot":
            problems.append(f"--min-nodes: HyperPod has no elastic jobs on spot instances, as in group {group.name}")
        return problems
    if charts.queues != "kueue":
        problems.append("--min-nodes needs hyperpod:charts.queues kueue, or --operator hyperpod")
    if charts.topology:
        problems.append(
            "--min-nodes: with hyperpod:charts.topology a node that returns may be another place; --operator hyperpod"
        )
    return problems


def _problems(config: Config, group: InstanceGroup, namespace: str, efa: int | None) -> list[str]:
    """What else is wrong with a request on EKS."""
    settings, problems = config.settings, []
    if settings.orchestrator != "eks":
        problems.append("this stack runs Slurm (hyperpod:orchestrator); its jobs are in jobs/slurm, for sbatch")
    teams = [settings.namespace_of(team.name) for team in settings.namespaces]
    if namespace not in teams:
        problems.append(_no_namespace(namespace, teams))
    if efa is not None and not 0 <= efa <= efa_interfaces(group):
        most = efa_interfaces(group)
        problems.append(f"{efa} EFA interfaces a node; {group.type.name} has {most}, ask for 0 to {most}")
    return problems


def _bucket_problems(config: Config, namespace: str, asked: Sequence[str]) -> Iterator[str]:
    """What is wrong with the buckets that a job is to mount."""
    settings = config.settings
    teams = [team for team in settings.namespaces if settings.namespace_of(team.name) == namespace]
    there = [bucket.name for team in teams for bucket in team.buckets]
    for name in asked:
        if name not in there:
            has = f"it has {', '.join(there)}" if there else "it has none"
            yield f"--bucket {name}: no bucket of the team of namespace {namespace} (hyperpod:teams, buckets); {has}"


def _placement_problems(config: Config, group: InstanceGroup, choices: Choices) -> list[str]:
    """What is wrong with where a job is to run, for schedulers that know the network's layers."""
    charts, problems, asked = config.settings.charts, [], choices.placement
    if asked in (None, "any"):
        return []
    if not charts.topology and charts.queues != "task-governance":
        problems.append(f"--placement {asked} needs hyperpod:charts.topology; set it to true and run `pulumi up`")
    if not group.type.network_labels:
        problems.append(
            f"--placement {asked}: HyperPod labels no node of {group.type.name} with its place in the network"
        )
    return problems


def _near(config: Config, group: InstanceGroup, choices: Choices) -> dict[str, str]:
    """What tells Kueue where the workers' pods may run."""
    by_default = "near" if config.settings.charts.topology and group.type.network_labels else "any"
    asked = choices.placement or by_default
    if asked == "any":
        return {}
    if asked == "near":
        return {_PREFERRED: NETWORK_LAYERS[-1]}
    return {_REQUIRED: NETWORK_LAYERS[int(asked.removeprefix("layer-")) - 1]}


def _image_problems(config: Config, image: str | None) -> list[str]:
    """A closed network reaches private registries of its own region, through their endpoint, and no others."""
    region = config.region
    own = f".dkr.ecr.{region.name}.{region.dns_suffix}/"
    if not image or not config.settings.network.closed or own in image:
        return []
    return [
        f"a closed network (hyperpod:network.egress) does not reach {image}; mirror it to ECR in {region.name}, --image"
    ]


def _node(group: InstanceGroup, processes: int, devices: int | None, efa: int | None, charts: Charts) -> dict[str, Any]:
    request = pod_request(
        group,
        devices=devices,
        efa=efa,
        governed=charts.queues == "task-governance",
        checkpoint_percent=charts.checkpoint_memory_percent or 0,
    )
    return {
        "type": group.type.name,
        "group": group.name,
        "environment": config_map_name(group.name),
        "processes": processes,
        "request": request,
        "shared_memory": f"{max(1, int(int(str(request['memory'])[:-2]) * _SHARED_MEMORY_SHARE))}Gi",
        "tolerations": tolerations([group]),
    }


def _identity(uid: int) -> dict[str, Any]:
    """What Kubernetes' Pod Security Standard "restricted" wants of a pod; its containers have the rest.

    NCCL, EFA and Neuron need nothing beyond: their plugins bring the devices, which every user may open (Linux,
    drivers/infiniband/core/uverbs_main.c: mode 0666; AWS Neuron documentation, the driver's udev rule: 0666). How much
    memory may be locked is up to the node for every user without CAP_IPC_LOCK, root among them.
    """
    return {
        "runAsNonRoot": True,
        "runAsUser": uid,
        "runAsGroup": uid,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _system_file(name: str, uid: int) -> str:
    if name == "passwd":
        return f"root:x:0:0:root:/root:/bin/bash\ntrainer:x:{uid}:{uid}:trainer:{SCRATCH}:/bin/bash\n"
    return (ROOT / "jobs" / "eks" / name).read_text(encoding="utf-8")


def _rank(name: str) -> list[dict[str, Any]]:
    """A pod's rank among the workers, and where the first one is: Kubeflow's training operator numbers them by a label,
    gives each a Service of its pod's name, and says neither in the environment of a job without a master.
    """
    place = {"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}}
    return [
        {"name": "RANK", "valueFrom": place},
        {"name": "MASTER_ADDR", "value": f"{name}-worker-0"},
        {"name": "MASTER_PORT", "value": _PORT},
    ]


def _token() -> list[dict[str, Any]]:
    """The Hugging Face token, from a Secret and into the environment alone. Without one, gated models stay shut."""
    source = {"secretKeyRef": {"name": TOKEN_SECRET, "key": TOKEN_KEY, "optional": True}}
    return [{"name": "HF_TOKEN", "valueFrom": source}, {"name": "HF_HOME", "value": "/fsx/checkpoints/huggingface"}]
