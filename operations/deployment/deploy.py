"""``deploy``, ``preview`` and ``destroy`` as functions: run, find the first cause, suggest the next step."""

import re
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from pulumi.automation import CommandError

from .. import records
from ..cluster.node_logs import NodeLog, lifecycle_logs
from ..engine.data_resources import PRECIOUS
from ..engine.pulumi_cli import Cause, Command, CommandRun
from ..engine.state import HYPERPOD_CLUSTER
from ..failures import Exit, Failure, bad_input, reason
from ..failures.advice import next_step
from ..target import Target
from ..terminal import console
from ..terminal.console import note
from . import leftovers
from .boots import Boots
from .engines import Engine, PulumiEngine, attend
from .errors import DEPLOYMENTS
from .leftovers import Audit
from .progress import Progress


@dataclass
class Report:
    """A command's result. ``cause`` is what failed first; ``others`` failed later, mostly as a consequence.

    ``seconds`` have passed here; on AWS a rehearsed command takes about ``predicted_seconds``, 0 where nobody knows.
    ``components`` names what changes, by component and operation; ``inputs`` what changes of it, from what to what.
    ``lost`` names each resource with data or running work that is replaced or deleted, and what is lost with it.
    ``guarded`` lists those whose removal no configuration key requests. ``unknown_groups`` are worker groups that are
    added to a cluster whose Slurm controller knows them only once its scripts have run again.
    """

    stack: str
    command: Command
    engine: str
    succeeded: bool
    cancelled: bool = False
    seconds: float = 0.0
    predicted_seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    components: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    inputs: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    guarded: list[str] = field(default_factory=list)
    unknown_groups: list[str] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    cause: Cause | None = None
    others: list[Cause] = field(default_factory=list)
    node_logs: list[NodeLog] = field(default_factory=list)
    next_step: str = ""
    audit: Audit | None = None

    @property
    def code(self) -> Exit:
        """The verb's exit code: after a destroy, nothing may be left, and everything must have been searched."""
        if self.cancelled:
            return Exit.CANCELLED
        if not self.succeeded or (self.audit and self.audit.of_the_stack):
            return Exit.FAILED
        return Exit.CANNOT_KNOW if self.audit and self.audit.unknown else Exit.GOOD


def run(
    target: Target,
    engine: Engine,
    command: Command,
    *,
    total: int = 0,
    discard: Sequence[str] = (),
    offer: bool = False,
) -> Report:
    """Run a command, showing its progress on standard error, and explain how it ended.

    Ctrl-C cancels: operations in progress are finished, and the report says so. What only prepares another command, as
    a preview does, is cancelled even if it had nothing left to do by then. ``total`` is the number of changes that a
    preview has announced. With ``discard``, `destroy` deletes only these URNs. With ``offer``, a person at a terminal
    is asked whether to cancel at the first lifecycle script that fails. Raises CommandError if the CLI cannot run.
    """
    title = f"{command} {target.stack}"
    asked = threading.Event()

    def cancel() -> None:
        asked.set()
        engine.cancel()

    def ask(ended: threading.Event) -> None:
        with progress.paused():
            if console.answered("Stop the deployment? Pulumi finishes what is in progress; what is made stays.", ended):
                cancel()

    boots = Boots(target, lambda line: note(line, "yellow"), ask if offer else None)
    with ExitStack() as around:
        progress = around.enter_context(Progress(title, console.progress(), total, preview=command == "preview"))
        if command == "up" and isinstance(engine, PulumiEngine) and engine.on_aws:
            around.enter_context(boots)
        ended = attend(
            lambda: engine.discard(discard, progress.event) if discard else engine.execute(command, progress.event),
            cancel,
        )
    if asked.is_set() and (discard or command in ("preview", "refresh")):
        ended.failed = ended.cancelled = True
    precious = {name: kind for name, kind in ended.ended.items() if kind in PRECIOUS}
    report = Report(
        stack=target.stack,
        command=command,
        engine=engine.title,
        succeeded=not ended.failed,
        cancelled=ended.cancelled,
        seconds=ended.seconds,
        predicted_seconds=ended.predicted_seconds,
        counts=ended.counts,
        changes=ended.changed,
        components=ended.components,
        inputs=ended.inputs,
        lost={name: PRECIOUS[kind].what for name, kind in precious.items()},
        guarded=[name for name, kind in precious.items() if name in ended.replaced or not PRECIOUS[kind].asked],
        unknown_groups=[] if target.on_eks else _added(target, ended),
        warnings=ended.warnings,
    )
    if report.unknown_groups and command in ("preview", "up") and not ended.failed:
        after = "once it is deployed: " if command == "preview" else ""
        report.next_step = f"{after}hyperpod node run-scripts {target.stack} controller"
    if ended.failed:
        if boots.found is not None:
            ended.causes.insert(0, boots.found)
        _explain(target, report, ended)
        if command == "up":
            _warn(report, engine)
    elif command == "up":
        report.outputs = engine.outputs()
        if boots.found is not None:
            report.warnings.append(str(boots.found))
    return report


def _added(target: Target, ended: CommandRun) -> list[str]:
    """The worker groups that an existing cluster gets (paths of operations/engine/inputs.py)."""
    cluster = [paths for name, paths in ended.inputs.items() if name.endswith(f"({HYPERPOD_CLUSTER})")]
    new = {path for paths in cluster for path, (before, _) in paths.items() if before == "none"}
    names = {found[1] for path in new if (found := re.fullmatch(r"instanceGroups\[(.+)\]", path))}
    return [group.name for group in target.config.worker_groups if group.name in names]


def _warn(report: Report, engine: Engine) -> None:
    """Warn that Pulumi's state may be wrong. If the CLI cannot tell, report only the failure itself."""
    with suppress(CommandError):
        if unsure := engine.unsure():
            report.warnings.append(
                f"Pulumi's state may have the desired values of {', '.join(unsure)}, not the actual ones. `deploy` "
                f"refreshes the state first. Before a plain `pulumi up`: pulumi refresh --stack {report.stack}"
            )


def settle(target: Target, engine: Engine, lose: Collection[str] = ()) -> tuple[Report | None, list[str]]:
    """After a failure, repair the state so that the next update can continue.

    Returns the last report, None if nothing had to be done, and the names of the resources that were deleted.

    If an update failed, refresh: when AWS refuses an update, Pulumi records the desired values with an error, and
    compares the next update with them (pulumi/pulumi issue 21458). The same update would then change nothing and
    succeed. A file system whose growth was refused would be replaced with an empty one if the old size were set again.

    If a creation failed after AWS had accepted it, delete the resource: Pulumi would compare it with the configuration,
    find no difference, and call the next update a success (pulumi/pulumi-aws-native pull request 208). What may hold
    data is deleted only if AWS itself calls it failed, or if ``lose`` names it.
    """
    unsure, broken = engine.unsure(), engine.half_made()
    if not unsure and not broken:
        return None, []
    note(f"The last update of {', '.join(unsure) or broken[0].name} failed: refreshing the state from AWS.", "yellow")
    report = run(target, engine, "refresh")
    if not report.succeeded:
        return report, []
    failed = {one.urn for one in engine.half_made()}
    broken = [one for one in broken if f"{one.name} (delete)" not in report.changes]
    doomed = [one for one in broken if one.name in lose or (one.untouched and (one.urn in failed or not one.precious))]
    for one in broken:
        if one not in doomed:
            note(f"The creation of {one.name} failed. If it does not work: deploy with --lose {one.name}", "yellow")
    if not doomed:
        return report, []
    names = [one.name for one in doomed]
    note(f"The creation of {', '.join(names)} failed: deleting it, to create it again.", "yellow")
    return run(target, engine, "destroy", discard=[one.urn for one in doomed]), names


def require_kept(planned: Report, allowed: Collection[str] = (), discarded: Collection[str] = ()) -> None:
    """Refuse a plan that replaces or deletes a guarded resource not in ``allowed``. Raises Failure.

    ``discarded`` are gone already.
    """
    if unknown := sorted(set(allowed) - planned.lost.keys() - set(discarded)):
        ends = ", ".join(planned.lost) or "nothing that holds data"
        raise bad_input(f"--lose {', '.join(unknown)}: not removed by this update", f"it removes {ends}")
    if refused := [name for name in planned.guarded if name not in allowed]:
        words = "; ".join(f"{name} would be replaced or deleted: {planned.lost[name]}" for name in refused)
        raise Failure(
            f"nothing was changed. {words}",
            f"Pulumi's state may be wrong: pulumi refresh --stack {planned.stack}. If it is right, save what you need "
            f"and run `hyperpod deploy` with {' '.join(f'--lose {name}' for name in refused)}",
        )


def _explain(target: Target, report: Report, ended: CommandRun) -> None:
    report.cause, report.others = next(iter(ended.causes), None), ended.causes[1:]
    if report.cancelled:
        report.next_step = (
            "nothing more was started; run the same command to continue, or "
            f"`hyperpod destroy {target.stack}` to delete what exists"
        )
        if report.cause is not None and report.cause.type == HYPERPOD_CLUSTER:
            report.next_step += ". Until then HyperPod keeps creating nodes that fail, and you pay for them"
    if report.cause is None:
        return
    report.next_step = report.next_step or next_step(report.cause.text, target.stack)
    if report.cause.type == HYPERPOD_CLUSTER and report.command == "up":
        try:
            report.node_logs = lifecycle_logs(target.aws, target.cluster_name)
        except (ClientError, BotoCoreError) as error:
            report.warnings.append(f"the nodes' logs could not be read: {reason(error)}")


def keep(target: Target, report: Report) -> None:
    """Record how a command ended, for ``errors``."""
    cause = asdict(report.cause) if report.cause else None
    record = {"command": report.command, "succeeded": report.succeeded, "seconds": report.seconds, "cause": cause}
    records.add(target, DEPLOYMENTS, record)


def destroy(
    target: Target,
    engine: Engine,
    *,
    total: int = 0,
    remove_leftovers: bool = False,
    ask: Callable[[str], bool] = lambda question: False,
) -> Report:
    """Destroy the stack, then search the account for leftovers; on request, remove what AWS itself created.

    If the engine failed, the next destroy deletes the stack's own resources. The report then names only what AWS itself
    created, such as an orphaned network interface that blocks the deletion of a subnet. Where that is GuardDuty's
    endpoint, ``ask`` decides, and once it is gone the stack is destroyed again.
    """
    report = _destroy(target, engine, total)
    found = report.audit or Audit()
    if managed := [one for one in found.leftovers if one.kind in leftovers.GUARDDUTY]:
        names = " and ".join(f"{one.kind} {one.id}" for one in managed)
        if remove_leftovers or ask(f"{names} hold the stack's VPC. Delete them, and destroy the rest?"):
            gone = Audit(leftovers=managed)
            leftovers.remove(target, gone)
            report = _destroy(target, engine, total)
            report.audit = found = report.audit or Audit()
            found.removed, found.unknown = gone.removed, [*gone.unknown, *found.unknown]
    if remove_leftovers and not report.cancelled:
        leftovers.remove(target, found)
    return report


def _destroy(target: Target, engine: Engine, total: int) -> Report:
    report = run(target, engine, "destroy", total=total)
    if report.cancelled:
        return report
    report.audit = leftovers.audit(target)
    if not report.succeeded:
        report.audit.leftovers = [one for one in report.audit.leftovers if one.by_aws]
        if any(one.kind in (leftovers.INTERFACE, *leftovers.GUARDDUTY) for one in report.audit.leftovers):
            report.next_step = f"hyperpod destroy {target.stack} --remove-leftovers, then destroy again"
    return report
