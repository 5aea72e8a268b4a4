"""What is wrong with a request for a job, before anything is submitted: every problem, with what would be right."""

from collections.abc import Iterator, Sequence

from components.config import Config, InstanceGroup
from components.kubernetes.pod_resources import efa_interfaces

from .choices import Choices
from .specs import IMAGE_ARCHITECTURE, Job
from .specs import JOBS as SPECS


class JobError(ValueError):
    """A job that cannot run on this cluster; ``problems`` lists everything that is wrong, with its fix."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


def jobs_of(config: Config) -> tuple[str, ...]:
    """The jobs that this cluster's accelerator can run."""
    return tuple(name for name, job in SPECS.items() if config.settings.accelerator in job.images)


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


def eks_problems(name: str, job: Job, config: Config, group: InstanceGroup, choices: Choices) -> list[str]:
    """What else is wrong with a request on EKS, whose namespace and nodes are chosen."""
    namespace, nodes = choices.namespace or "", choices.nodes or 0
    problems = [
        *_problems(config, group, namespace, choices.efa),
        *_bucket_problems(config, namespace, choices.buckets or ()),
        *_placement_problems(config, group, choices),
        *_operator_problems(name, job, config, group, choices),
        *_elastic_problems(name, job, config, group, nodes, choices),
    ]
    if choices.user:
        problems.append("--user is for Slurm; pods run as their team's user, and --namespace names the team")
    if not choices.image and group.type.architecture != IMAGE_ARCHITECTURE:
        problems.append(
            f"the jobs' images are for x86-64 and {group.type.name} is not: pass your own, "
            f"hyperpod job run {name} --image"
        )
    return problems


def image_problems(config: Config, image: str | None) -> list[str]:
    """A closed network reaches private registries of its own region, through their endpoint, and no others."""
    region = config.region
    own = f".dkr.ecr.{region.name}.{region.dns_suffix}/"
    if not image or not config.settings.network.closed or own in image:
        return []
    return [
        f"a closed network (hyperpod:network.egress) does not reach {image}; mirror it to ECR in {region.name}, --image"
    ]


def no_namespace(namespace: str, there: Sequence[str]) -> str:
    """That there is no such namespace, and which there are."""
    return f'the stack has no namespace "{namespace}" (hyperpod:teams); it has {", ".join(there)}'


def _problems(config: Config, group: InstanceGroup, namespace: str, efa: int | None) -> list[str]:
    """What else is wrong with a request on EKS."""
    settings, problems = config.settings, []
    if settings.orchestrator != "eks":
        problems.append("this stack runs Slurm (hyperpod:orchestrator); its jobs are in jobs/slurm, for sbatch")
    teams = [settings.namespace_of(team.name) for team in settings.namespaces]
    if namespace not in teams:
        problems.append(no_namespace(namespace, teams))
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
