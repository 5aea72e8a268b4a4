"""``usage``: accelerator hours and dollars by account and user, from Slurm's record of jobs and the price table.

On EKS by team and instance type, from the requests of running pods, which the stack's Prometheus workspace keeps.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hyperpod_node.slurm.conf import expand

from components.catalogue.accelerators import lookup
from components.config import Config

from ..cluster import nodes as cluster_nodes
from ..cluster import sessions
from ..cluster.node import Node
from ..failures import Failure, bad_input
from ..target import Target

# The question, from a time on: every run of a job that returned to the queue (--duplicates), cut to the time that is
# asked for (--truncate), with elapsed seconds of that time (sacct(1)).
_FIELDS = ("User", "Account", "JobIDRaw", "NodeList", "AllocTRES", "ElapsedRaw")
SACCT = (
    "/opt/slurm/bin/sacct --allusers --allocations --duplicates --truncate --noheader --parsable2 "
    f"--starttime={{since}} --endtime=now --format={','.join(_FIELDS)}"
)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?)?")
_SECONDS = 3600.0
# On EKS: how far apart pods are counted, and how much of the past one query reads (Amazon Managed Service for
# Prometheus limits the samples of a query).
_STEP_MINUTES, _PIECE_SECONDS = 5, 86_400
# The devices of a pod, by the names that kube-state-metrics makes of Kubernetes' and of task governance's.
_DEVICES = "nvidia_com_gpu|aws_amazon_com_neuron(device)?"
_HELD = """
sum by (namespace, instance_type) (
  sum by (namespace, node) (
    max by (namespace, pod, container, node, resource) (
      kube_pod_container_resource_requests{cluster_name="CLUSTER", resource=~"DEVICES", node!=""}
    ) and on (namespace, pod) kube_pod_status_phase{cluster_name="CLUSTER", phase="Running"} == 1
  ) * on (node) group_left (instance_type)
    max by (node, instance_type) (last_over_time(hyperpod_node_info{cluster="CLUSTER"}[10m]))
)"""


@dataclass(frozen=True, kw_only=True)
class Use:
    """What one user's jobs have used of one account. ``gpu_hours`` are hours of GPUs, or of Trainium chips; ``usd`` is
    None where the price of some of them is unknown.

    On EKS ``account`` is a team, or a namespace of others, and has a use for each ``instance_type``. Kubernetes knows
    no users of pods, and the metrics no jobs.
    """

    account: str
    user: str = ""
    jobs: int | None = None
    gpu_hours: float
    usd: float | None
    instance_type: str = ""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """A cluster's use since a time, the most expensive first. ``notes`` say what the figures leave out."""

    cluster: str
    since: str
    uses: tuple[Use, ...]
    notes: tuple[str, ...]
    picture: str = ""

    @property
    def gpu_hours(self) -> float:
        """All of it."""
        return sum(use.gpu_hours for use in self.uses)

    @property
    def dollars(self) -> str:
        """The same in words."""
        return "cost unknown" if self.usd is None else f"${self.usd:,.2f}"

    @property
    def usd(self) -> float | None:
        """All of it, US dollars; None where the price of some of it is unknown."""
        dollars = [use.usd for use in self.uses if use.usd is not None]
        return sum(dollars) if len(dollars) == len(self.uses) else None


def start(since: str | None, now: datetime) -> str:
    """The beginning of the time that is asked for, in sacct's form; by default of this month. Raises Failure."""
    if since is None:
        return f"{now:%Y-%m-01}"
    if not _TIME.fullmatch(since):
        raise bad_input(f'--since "{since}" is not a time', "2026-11-01, or 2026-11-01T08:00")
    try:
        datetime.fromisoformat(since)
    except ValueError:
        raise bad_input(f'--since "{since}" is not in the calendar', "2026-11-01, or 2026-11-01T08:00") from None
    return since


def ask(target: Target, since: str) -> Usage:
    """Ask the controller. Raises Failure where there is no accounting, or it does not answer."""
    nodes = cluster_nodes.list_nodes(target)
    ran = sessions.run_remote(target, cluster_nodes.controller(nodes), SACCT.format(since=since), timeout=300)
    if ran.code != 0:
        hint = "without hyperpod:slurm.accounting Slurm may keep none (docs/slurm-teams.md, Accounting)"
        raise Failure(f"sacct on the controller ended with {ran.code}: {ran.output.strip()}", hint)
    return read(target.config, nodes, ran.output.splitlines(), since)


def questions(target: Target, since: str, now: datetime) -> list[dict[str, str]]:
    """What to ask the stack's workspace, a day at a time. Raises Failure where it has none."""
    if not target.config.settings.observability.with_prometheus:
        raise bad_input(
            f"{target.stack} keeps no metrics, from which the use of EKS is added up",
            "set hyperpod:observability.prometheus to create and deploy; use counts from then on (docs/metrics.md)",
        )
    begin, end = int(datetime.fromisoformat(since).replace(tzinfo=UTC).timestamp()), int(now.timestamp())
    pieces = [(start, min(start + _PIECE_SECONDS, end)) for start in range(begin, end, _PIECE_SECONDS)]
    return [{"query": held(target.cluster_name, to - start), "time": str(to)} for start, to in pieces]


def held(cluster: str, seconds: int) -> str:
    """The PromQL expression for the hours of accelerators that running pods held in the last ``seconds``, by namespace
    and instance type. The first moment belongs to the time before.
    """
    inner = _HELD.replace("CLUSTER", cluster).replace("DEVICES", _DEVICES)
    return f"sum_over_time(({inner})[{max(seconds - 1, 1)}s:{_STEP_MINUTES}m]) * {_STEP_MINUTES} / 60"


def read_metrics(config: Config, answers: Iterable[Mapping[str, Any]], since: str) -> Usage:
    """Add up the workspace's answers to ``questions``."""
    teams = {config.settings.namespace_of(team.name): team.name for team in config.settings.namespaces}
    hours: dict[tuple[str, str], float] = {}
    for sample in (one for answer in answers for one in answer["result"]):
        namespace = sample["metric"]["namespace"]
        key = teams.get(namespace, namespace), sample["metric"]["instance_type"]
        hours[key] = hours.get(key, 0.0) + float(sample["value"][1])
    uses = [
        Use(account=key[0], instance_type=key[1], gpu_hours=round(used, 4), usd=_cents(_plus(0.0, used, _rate(key[1]))))
        for key, used in hours.items()
    ]
    notes = (
        "a pod pays for the accelerators that it requests while it runs, at the tables' rate; idle ones are extra",
        f"pods are counted every {_STEP_MINUTES} minutes; Kubernetes keeps no record of who started them",
        *_doubts([*_types(config), *(kind for _, kind in hours)]),
    )
    return Usage(cluster=config.settings.cluster_name, since=since, uses=tuple(sorted(uses, key=_order)), notes=notes)


def _order(use: Use) -> tuple[bool, float, float, str, str]:
    """Unknown prices first, then the most expensive."""
    return use.usd is not None, -(use.usd or 0.0), -use.gpu_hours, use.account, use.user or use.instance_type


def read(config: Config, nodes: Sequence[Node], lines: Iterable[str], since: str) -> Usage:
    """Add up sacct's lines."""
    rates = _rates(config, nodes)
    usual = _usual([_rate(name) for name in _types(config)])
    hours: dict[tuple[str, str], float] = {}
    dollars: dict[tuple[str, str], float | None] = {}
    jobs: dict[tuple[str, str], set[str]] = {}
    unknown = 0.0
    for line in lines:
        fields = dict(zip(_FIELDS, line.strip().split("|"), strict=False))
        if len(fields) < len(_FIELDS) or not fields["ElapsedRaw"].isdigit():
            continue
        key = fields["Account"] or "(none)", fields["User"]
        used = _accelerators(fields["AllocTRES"]) * int(fields["ElapsedRaw"]) / _SECONDS
        known = [rates[name] for name in expand(fields["NodeList"]) if name in rates]
        if used and not known and len(set(map(_rate, _types(config)))) > 1:
            unknown += used
        hours[key] = hours.get(key, 0.0) + used
        dollars[key] = _plus(dollars.get(key, 0.0), used, _mean(known) if known else usual)
        jobs.setdefault(key, set()).add(fields["JobIDRaw"])
    uses = [
        Use(account=key[0], user=key[1], jobs=len(jobs[key]), gpu_hours=round(used, 4), usd=_cents(dollars[key]))
        for key, used in hours.items()
    ]
    uses.sort(key=_order)
    notes = [
        "a job pays for the accelerators that it holds, at the tables' rate of their instances; idle ones are extra"
    ]
    notes += _doubts([*_types(config), *(node.instance_type for node in nodes)])
    if unknown:
        notes.append(f"{unknown:,.1f} hours on nodes that are gone are at the highest rate of the stack's instances")
    return Usage(cluster=config.settings.cluster_name, since=since, uses=tuple(uses), notes=tuple(notes))


def _types(config: Config) -> list[str]:
    return [row.name for group in config.training_groups for row in group.types]


def _doubts(types: Iterable[str]) -> Iterator[str]:
    """The instance types whose jobs have no price of HyperPod's."""
    for name in dict.fromkeys(types):
        row = lookup(name)
        if row.accelerator and row.hourly_usd is None:
            yield f"the price of {name} is unknown: what its jobs cost is too"
        elif row.accelerator and row.price_basis != "hyperpod":
            source = row.price_source.split(";")[0]
            yield f"HyperPod's price of {name} is unknown: its dollars are an estimate ({source})"


def _usual(rates: Sequence[float | None]) -> float | None:
    """The highest rate, for jobs whose nodes are gone; None if one is unknown."""
    found = [rate for rate in rates if rate is not None]
    return max(found, default=0.0) if len(found) == len(rates) else None


def _mean(rates: Sequence[float | None]) -> float | None:
    found = [rate for rate in rates if rate is not None]
    return sum(found) / len(found) if len(found) == len(rates) else None


def _plus(dollars: float | None, used: float, rate: float | None) -> float | None:
    """With so many hours more. No hours cost nothing at any rate."""
    if not used:
        return dollars
    return None if dollars is None or rate is None else dollars + used * rate


def _cents(dollars: float | None) -> float | None:
    return None if dollars is None else round(dollars, 2)


def _rates(config: Config, nodes: Sequence[Node]) -> Mapping[str, float | None]:
    """US dollars for an hour of an accelerator, by node; None where the price is unknown."""
    roles = {group.name for group in config.training_groups}
    return {node.hostname: _rate(node.instance_type) for node in nodes if node.group in roles and node.hostname}


def _rate(instance_type: str) -> float | None:
    """None too where the number of its accelerators is unknown."""
    row = lookup(instance_type)
    if not row.accelerator:
        return 0.0
    return row.hourly_usd / row.accelerators if row.hourly_usd is not None and row.accelerators else None


def _accelerators(tres: str) -> int:
    """How many a job has, of ``billing=8,cpu=96,gres/gpu=8,node=1``. Typed ones (gres/gpu:h100) are among them."""
    found = re.search(r"(?:^|,)gres/(?:gpu|neuron)=(\d+)", tres)
    return int(found[1]) if found else 0


def draw(usage: Usage, path: Path) -> None:
    """Bars of dollars by account, with a part for each user, on EKS for each instance type; the file name's extension
    sets the format."""
    # Importing it takes a second. Figures go to files: no window and no pyplot state.
    from matplotlib.figure import Figure

    accounts = list(dict.fromkeys(use.account for use in usage.uses))
    figure = Figure(figsize=(9, 1.8 + 0.6 * len(accounts)), layout="constrained")
    axes = figure.subplots()
    ends = dict.fromkeys(accounts, 0.0)
    for user in dict.fromkeys(use.user or use.instance_type for use in usage.uses):
        own = [use for use in usage.uses if (use.user or use.instance_type) == user]
        shown = [use.usd or 0.0 for use in own]
        axes.barh([use.account for use in own], shown, left=[ends[use.account] for use in own], label=user)
        for use in own:
            ends[use.account] += use.usd or 0.0
    for account, end in ends.items():
        of = [use for use in usage.uses if use.account == account]
        more = " and what is unknown" if any(use.usd is None for use in of) else ""
        axes.annotate(f" ${end:,.0f}{more}, {sum(use.gpu_hours for use in of):,.0f} h", (end, account), va="center")
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.set_xlim(left=0)
    axes.set_xlabel("US dollars")
    axes.set_title(f"{usage.cluster} since {usage.since}: {usage.gpu_hours:,.0f} accelerator hours, {usage.dollars}")
    axes.grid(visible=True, axis="x", alpha=0.3)
    if accounts:
        axes.legend(title="instance type" if usage.uses[0].instance_type else "user")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
