"""Jobs for a Kubernetes cluster, rendered for the stack's own nodes from the templates in ``jobs/eks``."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from components.common.documents import load_all
from components.config import Config, InstanceGroup
from components.kubernetes.helm import NEURON_SCHEDULER
from components.kubernetes.keys import Charts
from components.kubernetes.metrics_scraper import PORT, PORT_NAME
from components.kubernetes.node_placement import GROUP_LABEL, NETWORK_LAYERS
from components.kubernetes.pod_environment import TRACKING_MAP, config_map_name, nccl_network
from components.kubernetes.pod_resources import efa_interfaces, pod_request, tolerations
from components.kubernetes.storage import CLAIM_NAME, DATA_CLAIM, bucket_claim
from components.kubernetes.teams.queues import LOCAL_QUEUE, PRIORITY_LABEL, QUEUE_LABEL

from .choices import DEFAULTS, Choices
from .requests import (
    JobError,
    assignments,
    eks_problems,
    find_group,
    image_problems,
    known,
    no_namespace,
    request_problems,
)
from .specs import JOBS as SPECS
from .specs import NAME_LABEL, SCRATCH, TOKEN_KEY, TOKEN_SECRET, Job, Plan, templates

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
    problems += eks_problems(name, job, config, workers, replace(choices, namespace=namespace, nodes=nodes))
    variables = assignments(choices.env, problems)
    if not image and settings.accelerator in job.images:
        image = job.image(settings.accelerator, config.region)
    problems += image_problems(config, image)
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
            tracking=TRACKING_MAP if settings.observability.mlflow else "",
            env=[
                _HOME,
                *(_REPORTS if told else []),
                *([{"name": "MLFLOW_EXPERIMENT_NAME", "value": name}] if settings.observability.mlflow else []),
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
        raise JobError([no_namespace(namespace or "", namespaces)])
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


def _near(config: Config, group: InstanceGroup, choices: Choices) -> dict[str, str]:
    """What tells Kueue where the workers' pods may run."""
    by_default = "near" if config.settings.charts.topology and group.type.network_labels else "any"
    asked = choices.placement or by_default
    if asked == "any":
        return {}
    if asked == "near":
        return {_PREFERRED: NETWORK_LAYERS[-1]}
    return {_REQUIRED: NETWORK_LAYERS[int(asked.removeprefix("layer-")) - 1]}


def _node(group: InstanceGroup, processes: int, devices: int | None, efa: int | None, charts: Charts) -> dict[str, Any]:
    request = pod_request(
        group,
        devices=devices,
        efa=efa,
        governed=charts.queues == "task-governance",
        checkpoint_percent=charts.checkpoint_memory_percent or 0,
    )
    return {
        "type": group.type.name if len(group.types) == 1 else "",
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
