"""The shared file system: found, waited for, mounted once, proven to be writable."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hyperpod_node.boot import steps
from hyperpod_node.facts.model import Node
from hyperpod_node.host.errors import StepError, TooSlow
from hyperpod_node.host.host import Result
from hyperpod_node.storage import fstab, fsx, home

from tests.lifecycle.rig import HOME, VPC, FakeHost, World, file_system

FSTAB_LINE = (
    "fs-0a.fsx.us-west-2.amazonaws.com@tcp:/abcdefgh /fsx lustre relatime,flock,_netdev,x-systemd.automount 0 0"
)


def test_it_is_mounted_and_in_fstab_once(host: FakeHost, node: Node) -> None:
    assert fsx.run(node) == "fs-0a mounted at /fsx"
    fsx.run(host.node())
    assert [call[:5] for call in host.calls if call[0] == "mount"] == [
        ("mount", "-t", "lustre", "-o", "relatime,flock")
    ]
    assert host.text("/etc/fstab").splitlines() == ["# <source>", "LABEL=root / ext4 defaults 0 1", FSTAB_LINE]


def test_a_second_run_asks_aws_nothing(host: FakeHost, node: Node) -> None:
    fsx.run(node)
    host.calls.clear()
    fsx.run(host.node())
    assert not host.ran("aws")


def test_a_run_that_was_killed_before_fstab_is_completed(host: FakeHost, node: Node) -> None:
    fsx.run(node)
    host.path("/etc/fstab").write_text("")
    fsx.run(host.node())
    assert host.text("/etc/fstab") == FSTAB_LINE + "\n"


def test_it_is_waited_for_while_it_is_created(world: World, host: FakeHost, node: Node) -> None:
    world.file_systems = [file_system("fs-0a", "CREATING")]

    def later() -> None:
        if host.clock > 1060:
            world.file_systems = [file_system("fs-0a")]

    host.on_sleep = later
    fsx.run(node)
    assert 1060 < host.clock < 1070


def test_it_is_waited_for_before_it_exists(world: World, host: FakeHost, node: Node) -> None:
    world.file_systems = [file_system("fs-other", tag="other-1")]

    def later() -> None:
        if host.clock > 1100 and len(world.file_systems) == 1:
            world.file_systems.append(file_system("fs-0a", "CREATING"))
        if host.clock > 1200:
            world.file_systems[-1] = file_system("fs-0a")

    host.on_sleep = later
    assert fsx.run(node) == "fs-0a mounted at /fsx"


def test_a_file_system_that_never_becomes_available_ends_the_wait_with_what_was_seen(
    world: World, host: FakeHost, node: Node
) -> None:
    world.file_systems = [file_system("fs-other", tag="mine-123456789")]
    with pytest.raises(StepError) as error:
        fsx.run(node)
    assert str(error.value) == (
        "the file system with tag hyperpod:cluster-id=mine-12345678 was not available in us-west-2 within 1800 s: "
        "none has it yet; others there: fs-other"
    )
    assert host.clock == pytest.approx(2800, abs=1)
    assert len([call for call in host.calls if call[0] == "aws"]) < 300
    for there, seen in (
        ([file_system("fs-0a", "CREATING")], "fs-0a is CREATING"),
        ([file_system("fs-b", tag="other-1")], "none has it yet; others there: fs-b"),
        ([], "the region has no file system"),
    ):
        world.file_systems = there
        with pytest.raises(StepError, match=rf" within 1800 s: {seen}$"):
            fsx.run(host.node())


def test_a_foreign_file_system_whose_tag_contains_ours_is_never_taken(world: World, host: FakeHost, node: Node) -> None:
    world.file_systems = [file_system("fs-foreign", tag="mine-12345678-trn"), file_system("fs-0a")]
    assert fsx.run(node) == "fs-0a mounted at /fsx"


def test_two_with_our_tag_fail_naming_both(world: World, node: Node) -> None:
    world.file_systems = [file_system("fs-0a"), file_system("fs-0b", "CREATING")]
    with pytest.raises(
        StepError, match=r"^2 file systems have tag \S+: fs-0a and fs-0b; delete one or take its tag away$"
    ):
        fsx.run(node)


def test_one_that_is_being_deleted_does_not_count(world: World, node: Node) -> None:
    world.file_systems = [file_system("fs-old", "DELETING"), file_system("fs-0a")]
    assert fsx.run(node) == "fs-0a mounted at /fsx"


def test_a_failed_one_ends_the_wait_at_once(world: World, host: FakeHost, node: Node) -> None:
    world.file_systems = [{**file_system("fs-0a", "FAILED"), "FailureDetails": {"Message": "no capacity"}}]
    with pytest.raises(StepError, match=r"^file system fs-0a is FAILED: no capacity$"):
        fsx.run(node)
    assert host.clock == 1000


def test_one_that_the_api_describes_by_halves_is_named_with_what_it_lacks(world: World, node: Node) -> None:
    world.file_systems = [{key: value for key, value in file_system("fs-0a").items() if key != "DNSName"}]
    with pytest.raises(StepError, match=r"^file system fs-0a has no 'DNSName'$"):
        fsx.run(node)


def test_an_answer_that_is_no_json_is_shown_by_its_beginning(host: FakeHost, node: Node) -> None:
    host.commands["aws"] = lambda *_: Result(0, "<html>" + "x" * 100)
    with pytest.raises(StepError) as refused:
        fsx.run(node)
    assert str(refused.value) == f"`aws fsx describe-file-systems` printed no JSON: '<html>{'x' * 74}'"


def test_a_denied_call_is_retried_for_a_minute_and_then_named(host: FakeHost, node: Node) -> None:
    host.fail["aws"] = Result(
        254, "", "An error occurred (AccessDeniedException) when calling DescribeFileSystems: not authorized"
    )
    with pytest.raises(StepError, match=r"^not permitted to look for the file system: An error .*not authorized$"):
        fsx.run(node)
    assert 1060 <= host.clock < 1080


def test_three_attempts_of_the_command_fit_into_the_time_that_a_call_has(
    world: World, host: FakeHost, node: Node
) -> None:
    world.file_systems = [file_system("fs-0a")]
    fsx.run(node)
    call = next(call for call in host.calls if call[0] == "aws")
    connect, read = (float(call[call.index(f"--cli-{name}-timeout") + 1]) for name in ("connect", "read"))
    # A lost connection is noticed by one of both. The waits between attempts are 1 and 2 s.
    assert 3 * max(connect, read) + 3 < node.timeout("aws")


def test_a_throttled_call_is_asked_again(host: FakeHost, node: Node) -> None:
    host.fail["aws"] = Result(254, "", "An error occurred (ThrottlingException) when calling: Rate exceeded")
    host.on_sleep = lambda: host.fail.clear() if host.clock > 1005 else None
    fsx.run(node)


def test_a_missing_aws_command_is_named(host: FakeHost, node: Node) -> None:
    host.missing.add("aws")
    with pytest.raises(StepError, match=r"command not found: aws"):
        fsx.run(node)


def test_a_mount_that_fails_at_first_is_tried_again(host: FakeHost, node: Node) -> None:
    host.fail["mount"] = Result(32, "", "mount.lustre: No such device or address")
    host.on_sleep = lambda: host.fail.clear() if host.clock > 1002 else None
    fsx.run(node)


def test_a_mount_that_never_works_says_what_mount_said(host: FakeHost, node: Node) -> None:
    host.fail["mount"] = Result(32, "", "mount.lustre: Connection timed out")
    with pytest.raises(
        StepError, match=r"^\S+:/abcdefgh was not mounted at /fsx within 120 s: mount.lustre: Connection timed out$"
    ):
        fsx.run(node)
    assert "lustre" not in host.text("/etc/fstab")


def test_a_read_only_mount_fails(host: FakeHost, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path.open

    def refuse(path: Path, *args: object, **kwargs: object) -> object:
        if ".hyperpod-probe" in path.name:
            raise OSError(30, "Read-only file system")
        return whole(path, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(StepError, match=r"^cannot write to /fsx: Read-only file system$"):
        fsx.run(node)


def test_the_probe_leaves_nothing_and_the_private_part_is_private(world: World, node: Node) -> None:
    fsx.run(node)
    assert not list(world.shared.glob(".hyperpod-probe*"))
    assert (world.shared / ".hyperpod/private").stat().st_mode & 0o777 == 0o700


def test_an_old_line_in_fstab_for_the_mount_point_is_replaced(host: FakeHost, node: Node) -> None:
    others = ["UUID=1 /data ext4 defaults 0 0", "  # /fsx is HyperPod's", "#/dev/x /fsx ext4 defaults 0 0", "", "short"]
    host.path("/etc/fstab").write_text("\n".join(["old@tcp:/x /fsx lustre defaults 0 0", *others, ""]))
    fsx.run(node)
    assert host.text("/etc/fstab").splitlines() == [*others, FSTAB_LINE]
    host.path("/etc/fstab").write_text("\n".join([*others, ""]))
    assert fstab.source(host, "/fsx") is None
    assert fstab.source(host, "/data") == "UUID=1"


WITH_HOME = {"network": VPC, "fsx": {"homeFileSystemId": HOME}}


def test_homes_take_no_port_of_lustres_after_a_reboot(tmp_path: Path) -> None:
    """Lustre listens on 988, which an NFS client may take from 665 on (FSx for Lustre User Guide, "File system mount
    fails during system boot"; Linux, include/linux/sunrpc/xprtsock.h)."""
    openzfs = {**file_system(HOME), "FileSystemType": "OPENZFS", "Tags": []}
    host = World(tmp_path, file_systems=[file_system("fs-0a"), openzfs], settings=WITH_HOME).node("worker")
    host.path("/home").rename(host.path("/home.old"))
    host.path("/home").mkdir()
    home.run(host.node())
    options = host.text("/etc/modprobe.d/90-hyperpod-home.conf").splitlines()[1].split()
    assert options[:2] == ["options", "sunrpc"]
    name, first = options[2].split("=")
    assert name == "min_resvport"
    assert 988 < int(first) <= 1023


def test_a_second_file_system_serves_home_folders_when_configured(tmp_path: Path) -> None:
    openzfs = {**file_system(HOME), "FileSystemType": "OPENZFS", "Tags": []}
    world = World(tmp_path, file_systems=[file_system("fs-0a"), openzfs], settings=WITH_HOME)
    host = world.node("worker")
    host.path("/home").rename(host.path("/home.old"))
    host.path("/home").mkdir()
    assert home.run(host.node()) == f"{HOME} mounted at /home"
    assert host.ran("mount", "-t", "nfs")
    assert host.path("/home/ubuntu").is_dir()
    filled = [
        ("cp", "-r", f"{host.path('/etc/skel')}/.", str(host.path("/home/ubuntu"))),
        ("chown", "-R", "ubuntu:", str(host.path("/home/ubuntu"))),
    ]
    assert host.calls[-2:] == filled
    assert "/home/ubuntu" in host.changes
    # Another node finds the folder there, and leaves it to whom it belongs to.
    host.calls.clear()
    home.run(host.node())
    assert not {call[0] for call in host.calls} & {"cp", "chown"}
    host.path("/home/ubuntu").rmdir()
    host.path("/etc/skel").rename(host.path("/etc/none"))
    home.run(host.node())
    assert host.calls[-1:] == filled[1:]


def test_an_existing_file_system_is_found_by_its_id(tmp_path: Path) -> None:
    existing = {**file_system("fs-0c"), "Tags": []}
    settings = {"fsx": {"fileSystemId": HOME}, "network": VPC}
    world = World(tmp_path, file_systems=[file_system("fs-0a"), {**existing, "FileSystemId": HOME}], settings=settings)
    assert fsx.run(world.node("worker").node()) == f"{HOME} mounted at /fsx"


@pytest.fixture
def made(tmp_path: Path) -> World:
    """A stack that makes the file system for /home: both have its tag."""
    homes = {**file_system("fs-0b"), "FileSystemType": "OPENZFS"}
    world = World(tmp_path, file_systems=[homes, file_system("fs-0a")], settings={"fsx": {"homeStorageGiB": 64}})
    world.node("worker").path("/home").rename(world.node("worker").path("/home.old"))
    world.node("worker").path("/home").mkdir()
    return world


def test_the_stacks_two_file_systems_are_told_apart_by_their_types(made: World) -> None:
    host = made.node("worker")
    assert home.run(host.node()) == "fs-0b mounted at /home"
    assert fsx.run(host.node()) == "fs-0a mounted at /fsx"
    assert f"fs-0b.fsx.us-west-2.amazonaws.com:/fsx /home nfs {fsx.NFS_OPTIONS},_netdev,x-systemd.automount 0 0" in (
        host.text("/etc/fstab").splitlines()
    )


@pytest.mark.parametrize(("step", "kind"), [(fsx.run, "lustre"), (home.run, "nfs")])
def test_a_mount_that_hangs_once_is_tried_again_and_one_that_is_refused_is_told(
    made: World, step: Callable[[Node], str], kind: str
) -> None:
    host = made.node("worker")
    mount, tried = host.commands["mount"], list[str]()

    def hangs(one: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        tried.append(args[2])
        if len(tried) == 1:
            raise TooSlow("`mount` did not end within 60 s")
        return mount(one, args, stdin)

    host.commands["mount"] = hangs
    step(host.node())
    assert tried == [kind, kind]
    other = made.node("worker", address="10.1.0.13")
    other.fail["mount"] = Result(32, "", "mount: Connection refused")
    with pytest.raises(StepError, match=r"^\S+ was not mounted at /\w+ within 120 s: mount: Connection refused$"):
        step(other.node())


def test_keys_wait_for_the_home_folders_that_stay(tmp_path: Path) -> None:
    world = World(tmp_path, settings=WITH_HOME)
    needs = {step.name: step.needs for step in steps.for_orchestrator(world.node("worker").node())}
    assert needs["home"] == ("fsx",)
    assert "home" in needs["ssh"]
    assert "home" in needs["users-key"]
