"""``deploy``, ``preview`` and ``destroy`` as functions: run, find the first cause, say the next step."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from stack.commands import Cause, Command, CommandRun
from stack.failures import Exit
from stack.state import HYPERPOD_CLUSTER

from .. import records
from ..cluster.node_logs import NodeLog, lifecycle_logs
from ..console import err
from ..target import Target
from . import leftovers
from .advice import next_step
from .engines import Engine, attend
from .errors import DEPLOYMENTS
from .leftovers import Audit
from .live import Progress


@dataclass
class Report:
    """What a command came to. ``cause`` is what failed first; ``others`` failed after it, mostly because of it."""

    stack: str
    command: Command
    engine: str
    succeeded: bool
    cancelled: bool = False
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    cause: Cause | None = None
    others: list[Cause] = field(default_factory=list)
    node_logs: list[NodeLog] = field(default_factory=list)
    next_step: str = ""
    audit: Audit | None = None

    @property
    def code(self) -> Exit:
        """How the verb ends: after a destroy, nothing may be left, and everything must have been looked at."""
        if self.cancelled:
            return Exit.CANCELLED
        if not self.succeeded or (self.audit and self.audit.of_the_stack):
            return Exit.FAILED
        return Exit.CANNOT_KNOW if self.audit and self.audit.unknown else Exit.GOOD


def run(target: Target, engine: Engine, command: Command, *, total: int = 0) -> Report:
    """Run a command, showing what happens on standard error, and explain how it ended.

    Ctrl-C cancels: what is in progress is finished, and the report says so. ``total`` is how many resources a preview
    has announced. Raises CommandError where the CLI itself cannot run.
    """
    title = f"{command} {target.stack}"
    with Progress(title, err(), total) as progress:
        ended = attend(lambda: engine.execute(command, progress.event), engine.cancel)
    report = Report(
        stack=target.stack,
        command=command,
        engine=engine.title,
        succeeded=not ended.failed,
        cancelled=ended.cancelled,
        seconds=ended.seconds,
        counts=ended.counts,
        changes=ended.changed,
        warnings=ended.warnings,
    )
    if ended.failed:
        _explain(target, report, ended)
    elif command == "up":
        report.outputs = engine.outputs()
    return report


def _explain(target: Target, report: Report, ended: CommandRun) -> None:
    report.cause, report.others = next(iter(ended.causes), None), ended.causes[1:]
    if report.cancelled:
        report.next_step = (
            "nothing more was begun; the same command goes on where it stopped, "
            f"`python -m operations destroy {target.stack}` takes back what there is"
        )
    if report.cause is None:
        return
    report.next_step = report.next_step or next_step(report.cause.text, target.stack)
    if report.cause.type == HYPERPOD_CLUSTER and report.command == "up":
        try:
            report.node_logs = lifecycle_logs(target.aws, target.cluster_name)
        except (ClientError, BotoCoreError) as error:
            report.warnings.append(f"the nodes' logs could not be read: {error}")


def keep(target: Target, report: Report) -> None:
    """Remember how a command ended, for ``errors``."""
    cause = asdict(report.cause) if report.cause else None
    records.add(target, DEPLOYMENTS, {"command": report.command, "succeeded": report.succeeded, "cause": cause})


def destroy(target: Target, engine: Engine, *, total: int = 0, remove_leftovers: bool = False) -> Report:
    """Destroy the stack, then look for what is left in the account; remove AWS's own remains where told to.

    Where the engine failed, the stack's own resources are still its business: of what is left only AWS's own is
    reported, as a forgotten network interface that keeps a subnet from being deleted.
    """
    report = run(target, engine, "destroy", total=total)
    if report.cancelled:
        return report
    report.audit = leftovers.audit(target)
    if not report.succeeded:
        report.audit.leftovers = [one for one in report.audit.leftovers if one.by_aws]
        if any(one.kind == leftovers.INTERFACE for one in report.audit.leftovers):
            report.next_step = f"python -m operations destroy {target.stack} --remove-leftovers, then destroy again"
    if remove_leftovers:
        leftovers.remove(target, report.audit)
    return report
