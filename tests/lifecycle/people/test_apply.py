"""People: one account each on every node, a home and keys that are theirs, and nothing for those who have gone."""

import contextlib
import fcntl
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hyperpod_node.__main__ import boot
from hyperpod_node.facts import parameters
from hyperpod_node.facts.model import Node
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Result
from hyperpod_node.people import apply, unix_accounts
from hyperpod_node.storage import fsx

from tests.lifecycle.rig import HOME, PUBLIC_KEY, VPC, FakeHost, Killed, World

ONE = {"name": "research1", "uid": 2001, "sshKeys": [PUBLIC_KEY]}
TWO = {"name": "research2", "uid": 2002, "gid": 3000, "sudo": True}
THREE = {"name": "research3", "uid": 2003, "gid": 3000}
FILES = ("passwd", "group", "shadow", "gshadow")


def ready(host: FakeHost) -> Node:
    node = host.node()
    fsx.run(node)
    node.enter("people")
    return node


def applied(world: World, *users: dict[str, Any], role: str = "worker") -> Node:
    """A node after its step, with these people."""
    world.ship(users)
    node = ready(world.node(role))
    apply.run(node)
    return node


def tree(node: Node) -> dict[str, tuple[int, str]]:
    assert isinstance(node.host, FakeHost)
    return node.host.tree()


def row(node: Node, file: str, name: str) -> list[str]:
    lines = [line.split(":") for line in (node.host.read(f"/etc/{file}") or "").splitlines()]
    (found,) = [line[1:] for line in lines if line[0] == name]
    return found


def keys(node: Node, name: str = "research1") -> str:
    return node.host.path(f"/fsx/home/{name}/.ssh/authorized_keys").read_text()


def test_everybody_has_the_same_account_on_every_node_and_one_home(world: World) -> None:
    nodes = [applied(world, ONE, TWO, THREE, role=role) for role in ("controller", "login", "worker")]
    for node in nodes:
        assert row(node, "passwd", "research1") == ["x", "2001", "2001", "", "/fsx/home/research1", "/bin/bash"]
        assert row(node, "passwd", "research2")[1:3] == ["2002", "3000"]
        assert row(node, "shadow", "research1")[0] == "*"
        assert (row(node, "group", "research1")[1], row(node, "group", "hyperpod-3000")[1]) == ("2001", "3000")
        assert row(node, "gshadow", "hyperpod-3000") == ["!", "", ""]
        assert node.host.path("/etc/shadow").stat().st_mode & 0o777 == 0o640
        assert row(node, "passwd", "ubuntu")[1] == "1000"
        assert not node.warnings
    home = world.shared / "home/research1"
    assert (home.stat().st_mode & 0o777, home.parent.stat().st_mode & 0o777) == (0o700, 0o755)
    assert (home / ".bashrc").read_text() == "# skeleton\n"
    assert nodes[0].host.owner("/fsx/home/research1") == "research1"
    assert keys(nodes[0]) == f"{apply.BEGIN}\n{PUBLIC_KEY}\n{apply.END}\n"
    assert sorted(path.name for path in home.parent.iterdir()) == ["research1", "research2", "research3"]


def test_sudo_is_for_those_who_are_named_and_not_before_visudo_has_looked(world: World) -> None:
    host = applied(world, ONE, TWO).host
    assert host.read(unix_accounts.SUDOERS) == "research2 ALL=(ALL:ALL) NOPASSWD: ALL\n"
    assert host.path(unix_accounts.SUDOERS).stat().st_mode & 0o777 == 0o440
    world.ship([ONE, TWO])
    refusing = world.node()
    refusing.fail["visudo"] = Result(1, "", "syntax error")
    node = ready(refusing)
    apply.run(node)
    assert node.warnings["people"] == ["nobody of the stack has sudo: syntax error"]
    assert host.read(unix_accounts.SUDOERS) is None
    assert applied(world, ONE).host.read(unix_accounts.SUDOERS) is None


def test_what_others_have_in_the_files_of_accounts_stays_byte_by_byte(world: World) -> None:
    applied(world, ONE)
    host = world.node()
    lines = {
        # A name in Latin 1, an empty line, one of NIS's, and the shell that somebody has taken (chsh(1)).
        "passwd": b"ren\xe9:x:1500:1500:Ren\xe9\x85:/home/rene:/bin/sh\n\n+::::::\n",
        # A password that an administrator has set, and an account that never ends.
        "shadow": b"ren\xe9:$6$x:19000:0:99999:7::20000:\n",
        "group": b"caf\xe9:x:1500:ren\xe9",
    }
    for name, text in lines.items():
        with host.path(f"/etc/{name}").open("ab") as file:
            file.write(text)
    own = host.path("/etc/passwd").read_text("latin-1").replace("research1:/bin/bash", "research1:/bin/zsh")
    host.path("/etc/passwd").write_text(own, "latin-1")
    password = "research1:$6$y:19000:0:99999:7::20000:\n"
    kept = [line for line in host.path("/etc/shadow").read_text("latin-1").splitlines(True) if "research1" not in line]
    host.path("/etc/shadow").write_text("".join([*kept, password]), "latin-1")
    lines["shadow"] += password.encode()
    node = applied(world, ONE, TWO)
    for name, text in lines.items():
        assert text in host.path(f"/etc/{name}").read_bytes(), name
    assert row(node, "passwd", "research1")[-1] == "/bin/zsh"
    before = tree(node)
    assert tree(applied(world, ONE, TWO)) == before


def test_another_program_that_changes_accounts_is_waited_for_as_it_waits_for_us(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """lckpwdf(3): a lock of fcntl(2) on /etc/.pwd.lock, for 15 s."""
    asked: list[tuple[str, int]] = []

    def lockf(file: Any, how: int) -> None:
        asked.append((Path(file.name).name, how))
        raise BlockingIOError

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "lockf", lockf)
        with pytest.raises(StepError, match=r"^another program kept the accounts locked within 15 s$"):
            applied(world, ONE)
    assert set(asked) == {(".pwd.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)}
    host = applied(world, ONE).host
    assert host.path("/etc/.pwd.lock").stat().st_mode & 0o777 == 0o600


def test_a_second_run_changes_nothing(world: World) -> None:
    before = tree(applied(world, ONE, TWO))
    again = applied(world, ONE, TWO)
    assert (tree(again), again.host.changes) == (before, [])


def test_who_has_left_is_locked_loses_keys_and_processes_and_keeps_the_home(world: World) -> None:
    applied(world, ONE, TWO)
    host = world.node()
    alive = [True, False]
    host.commands["pkill"] = lambda h, args, stdin: Result(0 if alive.pop(0) else 1)
    world.ship([TWO])
    node = ready(host)
    assert apply.run(node) == "1 person, 1 locked"
    assert host.ran("pkill", "-KILL", "-U", "2001")
    assert row(node, "passwd", "research1")[-1] == "/usr/sbin/nologin"
    shadow = row(node, "shadow", "research1")
    assert (shadow[0], shadow[6]) == ("!*", "1")
    assert keys(node) == ""
    assert (world.shared / "home/research1/.bashrc").exists()
    node = applied(world, ONE, TWO)
    assert row(node, "passwd", "research1")[-1] == "/bin/bash"
    assert (row(node, "shadow", "research1")[0], row(node, "shadow", "research1")[6]) == ("*", "")
    assert PUBLIC_KEY in keys(node)


def test_who_has_left_is_locked_whatever_they_made_of_their_folder(world: World) -> None:
    applied(world, ONE)
    folder = world.shared / "home/research1/.ssh"
    folder.rename(folder.with_name("kept"))
    folder.symlink_to("kept")
    node = applied(world)
    assert row(node, "shadow", "research1")[0] == "!*"
    assert PUBLIC_KEY in (folder / "authorized_keys").read_text()


def test_what_does_not_end_is_told(world: World) -> None:
    applied(world, ONE)
    host = world.node()
    host.commands["pkill"] = lambda h, args, stdin: Result(0)
    world.ship([TWO])
    node = ready(host)
    apply.run(node)
    assert node.warnings["people"] == ["processes of research1 did not end within 5 s: they were told to"]


def test_keys_of_their_own_stay_and_the_stacks_are_as_the_stack_says(world: World) -> None:
    node = applied(world, ONE)
    path = node.host.path("/fsx/home/research1/.ssh/authorized_keys")
    path.write_text(f"ssh-rsa OWN mine\n{path.read_text()}")
    other = PUBLIC_KEY.replace("IJ4M2V1Q3bP8", "IJ4M2V1Q3bP9")
    assert keys(applied(world, {**ONE, "sshKeys": [other]})).splitlines() == [
        apply.BEGIN, other, apply.END, "ssh-rsa OWN mine",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "line", "why"),
    [
        ("passwd", "research1:x:1500:1500::/home/x:/bin/sh", "research1 has the number 1500 here, not 2001"),
        (
            "passwd",
            "other:x:2001:2001::/home/x:/bin/sh",
            "research1 cannot have the number 2001, which is other's here",
        ),
        ("group", "research1:x:77:", "research1 needs the group research1, which has the number 77 here"),
    ],
)
def test_nobody_gets_what_is_anothers_and_everybody_else_has_an_account(
    world: World, file: str, line: str, why: str
) -> None:
    world.ship([ONE, TWO])
    host = world.node()
    with host.path(f"/etc/{file}").open("a") as text:
        text.write(f"{line}\n")
    node = ready(host)
    assert apply.run(node) == "1 person"
    assert node.warnings["people"] == [f"{why}: no account"]
    assert row(node, file, line.split(":")[0]) == line.split(":")[1:]
    assert not (world.shared / "home/research1").exists()
    # Nor is it taken for ours later.
    world.ship([TWO])
    apply.run(ready(world.node()))
    assert row(node, file, line.split(":")[0]) == line.split(":")[1:]


def test_a_number_that_changes_is_refused_and_the_account_can_still_be_locked(world: World) -> None:
    applied(world, ONE)
    node = applied(world, {**ONE, "uid": 2005})
    assert node.warnings["people"] == ["research1 has the number 2001 here, not 2005: no account"]
    assert row(applied(world, TWO), "shadow", "research1")[6] == "1"


def test_no_link_that_root_of_another_node_has_planted_is_followed(world: World) -> None:
    outside = world.folder / "outside"
    outside.mkdir(mode=0o755)
    (world.shared / "home").mkdir()
    (world.shared / "home/research1").symlink_to(outside)
    # Even into a folder of theirs, which other nodes may not have made for this.
    world.folders[outside.stat().st_ino] = "research1"
    node = applied(world, ONE, TWO)
    (warning,) = node.warnings["people"]
    assert warning.startswith("research1 has no keys: ")
    assert (list(outside.iterdir()), outside.stat().st_mode & 0o777) == ([], 0o755)
    assert (world.shared / "home/research2").is_dir()
    (world.shared / "home").rename(world.shared / "moved")
    (world.shared / "home").symlink_to(outside)
    with pytest.raises(StepError, match=r"/fsx/home is not used, and no link is followed"):
        applied(world, ONE, TWO)


def test_somebody_elses_folder_is_no_home(world: World) -> None:
    (world.shared / "home/research1").mkdir(parents=True)
    assert applied(world, ONE).warnings["people"] == ["research1 has no keys: /fsx/home/research1 is root's"]


def test_nodes_that_start_together_make_a_home_once(world: World) -> None:
    world.ship([ONE])
    hosts = [world.node("worker", address=f"10.1.0.{number}", real_time=True) for number in (12, 13)]
    nodes = [ready(host) for host in (*hosts, world.node("controller", real_time=True))]
    threads = [threading.Thread(target=apply.run, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in (world.shared / "home").iterdir()] == ["research1"]
    assert (world.shared / "home/research1/.bashrc").exists()
    assert [node.warnings for node in nodes] == [{}, {}, {}]


def test_a_run_that_is_killed_anywhere_ends_right_when_it_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = unix_accounts._replace

    def ticking(host: FakeHost, name: str, data: bytes) -> None:
        host.tick()
        replace(host, name, data)

    monkeypatch.setattr(unix_accounts, "_replace", ticking)
    clean = World(tmp_path / "clean")
    applied(clean, ONE, THREE)
    wanted = tree(applied(clean, TWO, ONE))
    killed = 0
    for number in range(1, 30):
        world = World(tmp_path / str(number))
        applied(world, ONE, THREE)
        world.ship([TWO, ONE])
        host = world.node()
        node = ready(host)
        host.kill_at = host.operations + number
        with contextlib.suppress(Killed):
            apply.run(node)
            break
        killed += 1
        assert tree(applied(world, TWO, ONE)) == wanted
    assert killed == 8


def test_homes_are_where_the_homes_of_the_stack_are(tmp_path: Path) -> None:
    own = {"network": VPC, "fsx": {"homeFileSystemId": HOME}}
    assert json.loads(World(tmp_path, settings=own).ship([ONE]))["homes"] == "/home"


def test_a_worker_takes_no_job_before_it_knows_everybody(world: World) -> None:
    from hyperpod_node.boot.steps import for_orchestrator

    assert "people" not in [step.name for step in for_orchestrator(world.node().node())]
    world.ship([ONE])
    steps = {step.name: step for step in for_orchestrator(world.node().node())}
    assert "people" in steps["slurm"].needs
    assert steps["people"].required
    boot(world.node("controller", real_time=True))
    host = world.node(real_time=True)
    assert boot(host) == 0
    assert "research1:" in host.text("/etc/passwd")


# hyperpod-users


@pytest.fixture
def living(world: World, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """A controller that has booted with one person."""
    world.ship([ONE])
    host = world.node("controller")
    node = ready(host)
    apply.run(node)
    host.remember()
    monkeypatch.setattr(apply, "Host", lambda settings: host)
    return host


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_living_node_takes_the_list_of_the_bucket_and_says_who_is_there(
    living: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    living.world.objects["s3://bucket/people"] = text = living.world.ship([TWO])
    assert apply.main(["s3://bucket/people", "--region", "us-west-2"]) == 0
    found = told(capsys)
    assert found["people"] == {
        "research1": {"uid": 2001, "gid": 2001, "enabled": False},
        "research2": {"uid": 2002, "gid": 3000, "enabled": True},
    }
    assert found["digest"] == apply.digest(parameters.parse_people(json.loads(text), ""))
    assert living.ran("scancel", "--user=research1")
    assert apply.main([]) == 0
    assert told(capsys) == {**found, "warnings": []}


def test_nobody_is_locked_because_the_list_cannot_be_read(living: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    before = living.tree()
    assert apply.main(["s3://bucket/none", "--region", "us-west-2"]) == 1
    assert "404" in capsys.readouterr().err
    living.world.objects["s3://bucket/other"] = living.world.ship([TWO]).replace("mine-1", "other-1")
    assert apply.main(["s3://bucket/other", "--region", "us-west-2"]) == 1
    assert "is of the cluster other-12345678" in capsys.readouterr().err
    after = living.tree()
    assert {name: after[name] for name in before} == before


def test_nobody_left_is_said_explicitly(living: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    # Their jobs may have ended by themselves, and slurmctld may be away.
    living.fail["scancel"] = Result(1, "", "scancel: error: Unable to contact slurm controller")
    assert apply.main(["--nobody"]) == 0
    assert not told(capsys)["people"]["research1"]["enabled"]
    assert keys(Node(living)) == ""


def test_a_node_that_never_had_people_may_be_told_so(living: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    living.path("/etc/hyperpod/people.json").unlink()
    assert apply.main(["--nobody"]) == 0
    assert told(capsys)["people"] == {}
    assert json.loads(living.text("/etc/hyperpod/people.json"))["homes"] == "/home"
