"""Which node is this? resource_config.json, instance metadata, addresses, and the clock they tell."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hyperpod_node.facts import identity, parameters
from hyperpod_node.facts.model import Node
from hyperpod_node.host.errors import Skip, StepError
from hyperpod_node.system import clock

from tests.lifecycle.rig import FakeHost, World, group, instance_id

OWN = instance_id("10.1.0.12")


def identified(host: FakeHost) -> Node:
    node = host.node(identified=False)
    node.enter("identity")
    parameters.run(node)
    identity.run(node)
    return node


def edit(host: FakeHost, change: Callable[[Any], None]) -> None:
    path = host.path(host.settings.resource_config)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("role", ["controller", "login", "worker"])
def test_a_node_finds_its_group_role_and_catalogue_row(world: World, role: str) -> None:
    node = identified(world.node(role))
    assert node.role == role
    assert node.identity.group.instance_type == {"worker": "ml.p5.48xlarge"}.get(
        role, node.identity.group.instance_type
    )
    assert not node.warnings


def test_without_metadata_the_controller_is_still_the_controller_and_says_how_it_knows(world: World) -> None:
    host = world.node("controller")
    host.imds = {"mode": "down"}
    node = identified(host)
    assert node.role == "controller"
    said = "instance metadata did not answer at http://169.254.169.254/latest/api/token: timed out"
    assert node.warnings["identity"] == [f"{said}; identified by its address 10.1.0.10 alone"]


def test_metadata_that_refuses_a_first_connection_is_asked_again(world: World) -> None:
    host = world.node("worker")
    host.imds = {"mode": "flaky"}
    assert not identified(host).warnings


def test_imdsv1_is_not_used_unless_the_configuration_allows_it(world: World) -> None:
    host = world.node("worker")
    host.imds = {"mode": "v1"}
    said = "instance metadata gave no session token (status 403), and IMDSv1 is not allowed (imds_v1)"
    assert identified(host).warnings["identity"] == [f"{said}; identified by its address 10.1.0.12 alone"]


def test_imdsv1_is_used_where_the_configuration_allows_it(world: World) -> None:
    world.render(imdsV1=True)
    host = world.node("worker")
    host.imds = {"mode": "v1"}
    node = identified(host)
    assert not node.warnings
    assert node.identity.instance.instance_id.endswith("101012")


def test_an_unknown_node_fails_naming_what_was_looked_at(world: World) -> None:
    host = world.node("worker", address="10.1.9.9")
    with pytest.raises(
        StepError,
        match=r"^the resource configuration did not name this node within 30 s: /opt/ml/config/resource_config.json "
        r"does not have this node: instance id i-\d+, addresses 10\.1\.9\.9; it has controller-1 i-\d+ 10\.1\.0\.10, "
        r"login-1 i-\d+ 10\.1\.0\.11, workers-1 i-\d+ 10\.1\.0\.12, workers-2 i-\d+ 10\.1\.0\.13$",
    ):
        identified(host)
    host.imds = {"mode": "down"}
    edit(host, lambda d: d.update(InstanceGroups=[]))
    host.path("/proc/net/fib_trie").unlink()
    with pytest.raises(StepError, match=r": instance id unknown \(.* timed out\), addresses none; it has no instance$"):
        identified(host)


def test_an_instance_id_and_an_address_of_two_nodes_are_refused(world: World) -> None:
    host = world.node("worker")
    host.imds = {"mode": "v2", "instance_id": "i-00000000000101013"}
    with pytest.raises(
        StepError,
        match=r"^by its instance id i-\d+ this node is workers-2 of \S+, by its address 10.1.0.12 it is workers-1$",
    ):
        identified(host)


def test_a_group_without_parameters_fails_naming_both(world: World) -> None:
    host = world.node("worker")
    edit(host, lambda d: d["InstanceGroups"][2].update(Name="batch"))
    with pytest.raises(
        StepError,
        match=r"^this node is in group batch by \S+, and hyperpod_parameters.json has only controller, login, workers$",
    ):
        identified(host)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no resource configuration at /opt/ml/config/resource_config.json"),
        ("{", "is malformed"),
        ("{}", "lacks the key 'InstanceGroups'"),
        ('{"InstanceGroups": [{"Name": "workers", "Instances": [{}]}]}', "lacks the key 'InstanceId'"),
        ('{"InstanceGroups": 7}', "is malformed"),
        (
            '{"InstanceGroups": [{"Name": "a b", "Instances": [{"InstanceId": "i-1"}]}]}',
            "resource_config.json is malformed: Name is 'a b', and should be one word",
        ),
        (
            json.dumps({"InstanceGroups": [{"Name": "w", "Instances": [{"InstanceId": i} for i in (None, 7)]}]}),
            "is malformed: InstanceId is None, and should be one word",
        ),
        (
            json.dumps(
                {
                    "InstanceGroups": [
                        {"Name": "w", "Instances": [{"InstanceId": OWN, "InstanceName": n} for n in ("one", "two")]}
                    ]
                }
            ),
            "resource_config.json has this node more than once: one, two",
        ),
    ],
)
def test_a_bad_resource_configuration_is_named(world: World, text: str | None, said: str) -> None:
    host = world.node("worker")
    path = host.path(host.settings.resource_config)
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(StepError, match=said):
        identified(host)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is missing; the lifecycle bucket should have it"),
        ("[", "cannot be read"),
        ("[]", "is not a JSON object"),
        ('{"cluster_id": "x"}', "parameters.json: lacks cluster_name, region, orchestrator, instance_groups"),
    ],
)
def test_parameters_that_cannot_be_read_are_named(world: World, text: str | None, said: str) -> None:
    path = world.source / parameters.FILE_NAME
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(StepError, match=said):
        parameters.run(world.node("worker").node(identified=False))


GROUP = dataclasses.asdict(group("workers", "ml.p5.48xlarge"))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("orchestrator", "pbs", "orchestrator is 'pbs', which is none of 'slurm', 'eks'"),
        ("fsx_efa", "false", "fsx_efa is 'false', and should be true or false"),
        ("fsx_mount", None, "fsx_mount is None, and should be a text"),
        ("home_fsx_id", 7, "home_fsx_id is 7, and should be a text"),
        ("lost_after_seconds", True, "lost_after_seconds is True, and should be a number"),
        ("cidrs", "10.0.0.0/16", "cidrs is '10.0.0.0/16', and should be a list"),
        ("cidrs", ["10.0.0.0/16", 10], r"cidrs\[1\] is 10, and should be a text"),
        ("instance_groups", ["workers"], r"instance_groups\[0\] is 'workers', and should be an object"),
        ("instance_groups", [{**GROUP, "role": "boss"}], r"instance_groups\[0\].role is 'boss', which is none of"),
        ("instance_groups", [{**GROUP, "efa_interfaces": 1.5}], "efa_interfaces is 1.5, and should be a whole number"),
        ("instance_groups", [GROUP, {"name": "a"}], r"lacks instance_groups\[1\].role, instance_groups\[1\].instance"),
    ],
)
def test_a_parameter_of_the_wrong_kind_is_named(world: World, key: str, value: Any, said: str) -> None:
    path = world.source / parameters.FILE_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(StepError, match=said):
        parameters.run(world.node("worker").node(identified=False))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, f"a{bad}b") for key in ("cluster_id", "cluster_name", "region", "images_registry") for bad in " \n"),
        *((key, "a b") for key in ("fsx_id", "home_fsx_id", "ssh_public_key_parameter")),
        *(("fsx_mount", bad) for bad in ("fsx", "/f sx", "/fsx\n")),
        *(("remote_write_url", bad) for bad in ("http://a", "https://a b", "https:/a")),
        *(("cidrs", [bad]) for bad in ("10.0.0.0", "10.0.0.0/16 ", "10.0.0/16", "10.0.0.0/160")),
        *(("instance_groups", [{**GROUP, key: "a b"}]) for key in ("name", "instance_type")),
        ("instance_groups", [{**GROUP, "taints": ["a b"]}]),
    ],
)
def test_a_parameter_that_would_be_more_than_a_word_of_a_line_is_refused(world: World, key: str, value: Any) -> None:
    path = world.source / parameters.FILE_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(StepError, match=rf"/hyperpod_parameters\.json: {key}\S* is .*, and should "):
        parameters.run(world.node("worker").node(identified=False))


def test_the_environment_may_say_when_a_node_is_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPOD_LOST_AFTER", "2.5")
    assert identified(world.node("worker")).parameters.lost_after_seconds == 2.5
    monkeypatch.setenv("HYPERPOD_LOST_AFTER", "soon")
    with pytest.raises(StepError, match="HYPERPOD_LOST_AFTER is 'soon', and should be a number"):
        identified(world.node("worker"))


def test_a_clock_that_is_right_passes(world: World) -> None:
    assert clock.run(identified(world.node("worker"))).startswith("within 0 s")


@pytest.mark.parametrize("skew", [3600, -3600])
def test_a_clock_that_is_wrong_by_an_hour_fails_and_says_why_it_matters(world: World, skew: int) -> None:
    host = world.node("worker")
    host.skew = skew
    where = "ahead of" if skew > 0 else "behind"
    with pytest.raises(
        StepError,
        match=f"^the clock is 3600 s {where} the instance metadata's; MUNGE refuses credentials older than 300 s, "
        "so no Slurm daemon would be believed$",
    ):
        clock.run(identified(host))
    assert host.ran("chronyc", "-a", "makestep")


def test_a_clock_that_chrony_puts_right_passes(world: World) -> None:
    host = world.node("worker")
    host.skew = 900
    from hyperpod_node.host.host import Result

    def makestep(h: FakeHost, args: object, stdin: object) -> Result:
        h.skew = 0
        return Result(0)

    host.commands["chronyc"] = makestep
    assert clock.run(identified(host)).startswith("within 0 s")


@pytest.mark.parametrize(
    ("skew", "said"),
    [
        # A second is as exact as the metadata's clock is told, and nobody is told of five.
        (5, []),
        (-5, []),
        (30, ["the clock is +30 s off the instance metadata's"]),
        # Half of what a credential of MUNGE's lives.
        (-150, ["the clock is -150 s off the instance metadata's"]),
    ],
)
def test_a_clock_that_is_off_by_seconds_is_a_warning(world: World, skew: int, said: list[str]) -> None:
    host = world.node("worker")
    host.skew = skew
    node = identified(host)
    node.enter("clock")
    assert clock.run(node) == f"within {abs(skew)} s of the instance metadata's"
    assert node.warnings.get("clock", []) == said
    assert host.ran("chronyc") == (abs(skew) > 5)


def test_without_metadata_there_is_nothing_to_compare_the_clock_with(world: World) -> None:
    host = world.node("worker")
    host.imds = {"mode": "down"}
    with pytest.raises(Skip, match=r"^instance metadata gives no time to compare with$"):
        clock.run(identified(host))


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("down", "instance metadata did not answer at http://169.254.169.254/latest/api/token: timed out"),
        ("dateless", "instance metadata gives no time to compare with"),
    ],
)
def test_a_clock_that_cannot_be_compared_any_more_after_it_was_put_right_is_a_failure(
    world: World, mode: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = world.node("worker")
    host.skew = 30
    node = identified(host)
    host.imds = {"mode": "down" if mode == "down" else "v2"}
    monkeypatch.setattr(host, "_date", lambda: "")
    with pytest.raises(StepError, match=f"^{said}$"):
        clock.run(node)


@pytest.mark.parametrize("known", ["/lib", "/usr/lib", "/etc", ""])
def test_chrony_is_started_by_the_name_that_its_unit_has_here(host: FakeHost, node: Node, known: str) -> None:
    host.path("/lib/systemd/system/chrony.service").unlink()
    if known:
        host.path(f"{known}/systemd/system").mkdir(parents=True, exist_ok=True)
        host.path(f"{known}/systemd/system/chrony.service").write_text("[Service]\n")
    name = "chrony" if known else "chronyd"
    assert clock.synchronised(node) == f"{name} runs"
    assert host.active == {name}


def test_a_node_without_chrony_fails_and_says_what_that_means(host: FakeHost, node: Node) -> None:
    host.missing.add("chronyd")
    with pytest.raises(StepError, match=r"^chrony is not installed; nothing synchronizes the clock$"):
        clock.synchronised(node)


@pytest.mark.parametrize("early", ["", '{"InstanceGroups": [{"Name": "wor', '{"InstanceGroups": []}'])
def test_a_resource_configuration_that_the_agent_is_writing_is_read_again(world: World, early: str) -> None:
    host = world.node("worker")
    path = host.path(host.settings.resource_config)
    whole, began = path.read_text(), host.clock
    path.write_text(early)

    def later() -> None:
        if host.clock > began + 1:
            path.write_text(whole)
            host.on_sleep = lambda: None

    host.on_sleep = later
    assert identified(host).role == "worker"


def test_what_a_step_asks_for_before_it_is_known_is_a_failure_of_the_step(host: FakeHost) -> None:
    fresh = Node(host)
    with pytest.raises(StepError, match=r"^the parameters are not known$"):
        assert fresh.parameters
    with pytest.raises(StepError, match=r"^this node's identity is not known$"):
        assert fresh.role


SEVERAL = [
    {"name": "workers", "instanceType": "ml.p5.48xlarge", "fallbackTypes": ["ml.p5en.48xlarge"], "count": 2},
    {"name": "system", "instanceType": "ml.m5.xlarge", "count": 3},
]


def of_several(world: World, kind: str) -> FakeHost:
    """A node of a group of two types."""
    world.render(orchestrator="eks", workers=SEVERAL)
    host = world.node("worker")
    host.imds = {"mode": "v2", "instance_type": kind}
    return host


@pytest.mark.parametrize(("kind", "interfaces"), [("p5.48xlarge", 32), ("p5en.48xlarge", 16)])
def test_a_node_of_a_group_of_several_types_has_the_facts_of_its_own(world: World, kind: str, interfaces: int) -> None:
    node = identified(of_several(world, kind))
    assert (node.identity.group.instance_type, node.identity.group.efa_interfaces) == (f"ml.{kind}", interfaces)
    assert node.parameters.groups["workers"] == node.identity.group
    assert node.parameters.groups["system"].instance_type == "ml.m5.xlarge"


def test_a_node_of_a_type_that_its_group_does_not_have_stops_and_names_those_that_it_has(world: World) -> None:
    has = "and group workers has ml.p5.48xlarge, ml.p5en.48xlarge"
    with pytest.raises(StepError, match=f"^this node is ml.p4d.24xlarge, {has}$"):
        identified(of_several(world, "p4d.24xlarge"))
    host = of_several(world, "p5.48xlarge")
    host.imds = {"mode": "down"}
    with pytest.raises(StepError, match=r"^group workers has ml.p5.48xlarge, ml.p5en.48xlarge, and instance metadata"):
        identified(host)
