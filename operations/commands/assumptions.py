"""The verb ``assumptions``."""

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from .. import target
from ..assumptions import Assumption, register
from ..assumptions.probing import Finding, Stack, worst
from ..aws import SERVED
from ..failures import bad_input, cannot_know
from ..terminal import console


def assumptions_command(
    stack: Annotated[
        str,
        typer.Argument(metavar="[STACK]", help="A deployed stack to check. Without it, the assumptions are listed."),
    ] = "",
    only: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="Only this assumption, in full. Repeatable.")
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Check this project's assumptions on a live stack.

    The authors never ran this project on AWS. A register lists each assumption
    that cannot be verified without AWS, with a read-only probe: a call to AWS
    or Kubernetes, or a command on a node. Without STACK, the register is
    printed. With STACK, each assumption is probed and is then confirmed,
    refuted (with what to change) or unknown. The JSON contains no account
    numbers: please send it in.

    Exits with 1 if an assumption is refuted, with 3 if one stays unknown.

    \b
      hyperpod assumptions
      hyperpod assumptions --id slurm-version
      hyperpod assumptions dev --json > dev.json
    """
    rows = _chosen(only or [])
    if not stack:
        _list(rows, in_full=bool(only), as_json=as_json)
        return
    if os.environ.get(SERVED):
        raise cannot_know("a rehearsal proves nothing about AWS", "ask a stack on AWS, in a terminal without `source`")
    chosen = target.load(stack)
    _ = chosen.cluster
    rows = [row for row in rows if row.concerns(chosen.config)]
    live, findings = Stack(chosen), []
    for number, row in enumerate(rows, 1):
        found = live.ask(row)
        findings.append(found)
        console.note(f"{number}/{len(rows)} {row.id}: {found.result}", console.MARKS[found.result])
    if as_json:
        console.emit({"stack": stack, "region": chosen.aws.region, "findings": findings})
    else:
        _show(findings)
    raise typer.Exit(worst(findings))


def _chosen(ids: Sequence[str]) -> list[Assumption]:
    known = {row.id: row for row in register()}
    for one in ids:
        if one not in known:
            raise bad_input(f'there is no assumption "{one}"', "hyperpod assumptions")
    return [known[one] for one in ids or known]


def _list(rows: Sequence[Assumption], *, in_full: bool, as_json: bool) -> None:
    if as_json:
        console.emit([row.model_dump() for row in rows])
    elif not in_full:
        title = f"{len(rows)} assumptions; --id ID shows one in full"
        console.table(title, ["id", "sure", "claim"], [(row.id, row.sure, row.claim) for row in rows])
    else:
        for row in rows:
            _row(row)


def _row(row: Assumption) -> None:
    probe = row.probe
    asked = probe.command or f"{probe.api or probe.kubernetes} {dict(probe.arguments) or ''} {probe.find}".strip()
    console.say(row.id, "bold")
    for name, text in (
        ("claim", row.claim),
        ("source", f"{row.source} ({row.sure})"),
        ("asked", f"{f'{probe.node} node: ' if probe.node else ''}{asked}"),
        ("if wrong", row.wrong),
        ("change then", row.change),
    ):
        console.prose(f"  {name}: {' '.join(text.split())}")


def _show(findings: Sequence[Finding]) -> None:
    console.table("", ["", "assumption", "seen"], [(f.result, f.id, f.seen) for f in findings])
    for finding in findings:
        if finding.result == "refuted":
            console.prose(f"  {finding.id} is wrong: {finding.claim} What to change: {finding.change}")
    counts = {word: sum(f.result == word for f in findings) for word in ("confirmed", "refuted", "unknown")}
    console.say(", ".join(f"{number} {word}" for word, number in counts.items() if number), "bold")
