"""A deployment's live progress, in a terminal and in a log."""

import io
from typing import Any

from rich.console import Console

from operations.deployment.progress import Progress
from operations.engine.events import Event
from operations.engine.state import ResourceState


def happened(phase: Any, name: str = "nat", kind: str = "aws:ec2/natGateway:NatGateway", error: str = "") -> Event:
    parent = "urn:pulumi:dev::hyperpod::hyperpod:index:Network::network"
    urn = f"urn:pulumi:dev::hyperpod::hyperpod:index:Network${kind}::{name}"
    return Event(phase, "create", ResourceState(urn=urn, type=kind, name=name, custom=True, parent=parent), error)


def test_a_log_has_a_line_for_each_resource_with_elapsed_and_usual_time() -> None:
    text = io.StringIO()
    with Progress("up dev", Console(file=text, width=100)) as progress:
        progress.event(happened("start"))
        progress.event(happened("done"))
        progress.event(happened("start", "rule", "aws:ec2/route:Route"))
        progress.event(happened("failed", "rule", "aws:ec2/route:Route", "RouteAlreadyExists"))
    lines = text.getvalue().splitlines()
    assert lines[0] == "up dev"
    assert lines[1].split() == ["…", "create", "nat", "usually", "takes", "1:45"]
    assert lines[2].split() == ["✓", "create", "nat", "0:00", "taken,", "usually", "1:45"]
    assert lines[3].split() == ["✗", "create", "rule", "0:00", "taken,", "usually", "0:12", "RouteAlreadyExists"]
    assert len(lines) == 4


def test_a_log_counts_what_takes_seconds_by_component() -> None:
    text = io.StringIO()
    with Progress("up dev", Console(file=text, width=80)) as progress:
        for number in range(56):
            for phase in ("start", "done"):
                progress.event(happened(phase, f"file-{number}", "aws:s3/bucketObjectv2:BucketObjectv2"))
    assert text.getvalue().splitlines() == ["up dev", "  ✓ create   56 in network that took seconds"]


def test_a_terminal_has_a_line_per_component_with_what_takes_longest() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=100)
    progress = Progress("up dev", console, total=9)
    progress.event(happened("start"))
    for number in range(6):
        progress.event(happened("start", f"endpoint-{number}", "aws:ec2/vpcEndpoint:VpcEndpoint"))
    progress.event(happened("start", "vpc", "aws:ec2/vpc:Vpc"))
    progress.event(happened("done", "vpc", "aws:ec2/vpc:Vpc"))
    with console.capture() as captured:
        console.print(progress._render())
    lines = captured.get().splitlines()
    assert lines[0].strip() == "up dev  0:00, 1 of 9 done"
    assert lines[1].split()[:3] == ["network", "━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌", "1/8"]
    assert lines[1].endswith("… 0:00 of about 1:45, nat, and 6 more")
    assert len(lines) == 2


def test_a_terminal_of_80_columns_has_a_line_per_component_with_what_failed_first() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80)
    progress = Progress("up dev", console)
    progress.event(happened("start"))
    progress.event(happened("failed", "rule", "aws:ec2/route:Route", "RouteAlreadyExists"))
    with console.capture() as captured:
        console.print(progress._render())
    _, line = captured.get().splitlines()
    assert line.startswith("  network ╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌     0/2 ✗ 0:00 taken, usually 0:12, rule, and 1 more")
    assert len(line) <= 80


def test_a_preview_shows_only_what_fails() -> None:
    text = io.StringIO()
    with Progress("preview dev", Console(file=text, width=100), preview=True) as progress:
        progress.event(happened("start"))
        progress.event(happened("done"))
        progress.event(happened("failed", "rule", "aws:ec2/route:Route", "RouteAlreadyExists"))
    assert [line.split()[:3] for line in text.getvalue().splitlines()[1:]] == [["✗", "create", "rule"]]
