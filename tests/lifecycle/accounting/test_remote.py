"""Slurm's accounting in a database of RDS that is not there: it is waited for, and slurmdbd gets a user of its own."""

# ruff: noqa: ARG002 (fakes have the signatures of what they stand for)
import contextlib
import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hyperpod_node.accounting import backup, daemon, database, remote
from hyperpod_node.boot import steps
from hyperpod_node.facts.model import Node
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Result
from hyperpod_node.storage import fsx

from tests.lifecycle.accounting.rig import Database, with_accounting
from tests.lifecycle.fake_commands import COMMANDS
from tests.lifecycle.rig import FakeHost, Killed, World

CONF = "/opt/slurm/etc/slurmdbd.conf"
PLACE = {"host": "db.example.rds.amazonaws.com", "port": 3306, "secret": "arn:aws:secretsmanager:us-west-2:1:secret:x"}
AUTHORITY = "/opt/hyperpod/lib/hyperpod_node/accounting/rds-ca.pem"
NAME = "/hyperpod/mine/accounting-database"


class Rds:
    """What RDS, its secret and its client say: the administrator's password, slurmdbd's, and what the secret has."""

    def __init__(self) -> None:
        self.right = self.told = r"a#b\c"
        self.own = self.loaded = self.created = ""
        self.refused_by_role = False
        self.asked = 0

    def aws(self, host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        if args[1] != "secretsmanager":
            return COMMANDS["aws"](host, args, stdin)
        self.asked += 1
        if self.refused_by_role:
            return Result(254, "", "An error occurred (AccessDeniedException) when calling GetSecretValue: no")
        assert args[args.index("--secret-id") + 1] == PLACE["secret"]
        return Result(0, json.dumps({"SecretString": json.dumps({"username": "slurm", "password": self.told})}))

    def mariadb(self, host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        path = Path(args[1].removeprefix("--defaults-file="))
        assert path.stat().st_mode & 0o777 == 0o600
        text = path.read_text()
        assert text.splitlines()[:3] == ["[client]", f"host={PLACE['host']}", f"port={PLACE['port']}"]
        # MariaDB, "mariadb Command-Line Client": no name but that of the authority's certificate.
        end = f"\nssl-ca={AUTHORITY}\nssl-verify-server-cert\nconnect-timeout=10\n"
        assert text.endswith(end)
        user = text.split("user=")[1].split("\n")[0]
        given = text.split('password="')[1].split('"\n')[0].replace("\\\\", "\\")
        if (user, given) not in (("slurm", self.right), ("slurmdbd", self.own or None)):
            return Result(1, "", f"ERROR 1045 (28000): Access denied for user '{user}'@'10.1.0.10'")
        if stdin and "CREATE" in stdin:
            assert user == "slurm", "it may not make users"
            self.created, self.own = stdin, stdin.split("IDENTIFIED BY '")[1].split("'")[0]
        if stdin and args[-1] == "slurm_acct_db":
            assert self.created
            assert user == "slurmdbd", "what is in a copy is done with its rights"
            assert "--binary-mode" in args
            self.loaded = stdin
        return Result(0, "1\n")


@pytest.fixture
def rds() -> Rds:
    return Rds()


@pytest.fixture
def node(tmp_path: Path, rds: Rds) -> Node:
    world = World(
        tmp_path,
        settings={"slurm": {"accounting": {"database": "rds"}}},
        parameters={NAME: json.dumps(PLACE)},
    )
    found = at(world, rds)
    fsx.run(found)
    found.enter("accounting")
    return found


def at(world: World, rds: Rds) -> Node:
    host = with_accounting(world, Database())
    host.commands |= {"aws": rds.aws, "mariadb": rds.mariadb}
    return host.node()


def text_of(node: Node, name: str) -> str:
    return node.host.read(name) or ""


def test_slurmdbd_gets_a_user_of_its_own_with_rights_on_its_tables_alone(node: Node, rds: Rds) -> None:
    assert database.run(node) == "db.example.rds.amazonaws.com lets us in"
    assert "the database is new" in daemon.run(node)
    assert rds.created == (
        "CREATE DATABASE IF NOT EXISTS `slurm_acct_db` CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci;\n"
        f"CREATE OR REPLACE USER 'slurmdbd'@'%' IDENTIFIED BY '{rds.own}' REQUIRE SSL;\n"
        f"GRANT {remote.RIGHTS} ON `slurm\\_acct\\_db`.* TO 'slurmdbd'@'%';\n"
    )
    assert re.fullmatch(r"[\w-]{43}", rds.own)
    text, path = text_of(node, CONF), node.host.path(CONF)
    assert "StorageHost=db.example.rds.amazonaws.com\nStoragePort=3306\nStorageUser=slurmdbd\n" in text
    assert f"StoragePass={rds.own}\nStorageParameters=SSL_CA=/" in text
    assert (path.stat().st_mode & 0o777, node.host.owner(CONF)) == (0o600, "slurm")
    assert "slurmdbd" in node.host.active  # type: ignore[attr-defined]
    assert "mariadb" not in node.host.active  # type: ignore[attr-defined]
    assert not [name for name in node.host.tree() if name.endswith(".cnf")]  # type: ignore[attr-defined]


def test_the_administrators_password_is_not_read_again_and_its_change_changes_nothing(node: Node, rds: Rds) -> None:
    database.run(node)
    daemon.run(node)
    node.host.changes.clear()
    rds.asked, rds.right, rds.told = 0, "after seven days", "another"
    database.run(node)
    assert daemon.run(node).startswith("slurmdbd up, the database is kept")
    assert not node.host.changes
    assert rds.asked == 0


@pytest.mark.parametrize("lost", ["the file", "the user"])
def test_a_user_whose_password_is_lost_is_made_anew(node: Node, rds: Rds, lost: str) -> None:
    """On the disk of a new controller, and in a database that was restored from before."""
    database.run(node)
    daemon.run(node)
    before = rds.own
    if lost == "the file":
        node.host.remove(CONF)
    else:
        rds.own = ""
    database.run(node)
    assert "the database is kept" in daemon.run(node)
    assert rds.own not in ("", before)
    assert f"StoragePass={rds.own}\n" in text_of(node, CONF)
    assert node.host.calls[-1] == ("systemctl", "restart", "slurmdbd")  # type: ignore[attr-defined]


def test_a_controller_that_logs_in_as_the_administrator_does_so_no_more(node: Node, rds: Rds) -> None:
    """One that an earlier release has set up, with what followed the password there."""
    host, old = node.host, "hyperpod-accounting-password"
    left = (f"/etc/systemd/system/{old}.timer", f"/etc/systemd/system/{old}.service", f"/opt/hyperpod/bin/{old}")
    for name in left:
        host.write(name, "earlier\n")
    host.write(CONF, "StorageUser=slurm\nStoragePass=a\\#b\\\\c\n")
    host.active |= {f"{old}.timer", "slurmdbd"}  # type: ignore[attr-defined]
    database.run(node)
    daemon.run(node)
    assert "StorageUser=slurmdbd\n" in text_of(node, CONF)
    assert r"a\#b" not in text_of(node, CONF)
    assert [host.read(name) for name in left] == [None, None, None]
    assert f"{old}.timer" not in host.active  # type: ignore[attr-defined]
    assert "ExecStartPre" not in text_of(node, "/etc/systemd/system/slurmdbd.service.d/20-hyperpod.conf")


def test_a_password_that_is_refused_is_told_of_without_the_password(node: Node, rds: Rds) -> None:
    rds.told = "an old one"
    with pytest.raises(
        StepError,
        match=r"^the database at \S+:3306 refused the password of arn:\S+ within 180 s: ERROR 1045 ",
    ) as refused:
        database.run(node)
    assert "an old one" not in str(refused.value)


def test_a_role_that_may_not_read_the_password_is_told_of(node: Node, rds: Rds) -> None:
    database.run(node)
    rds.refused_by_role = True
    said = r"^not permitted to read the password: An error .* GetSecretValue: no$"
    with pytest.raises(StepError, match=said):
        remote.login(node, remote.place(node.host))
    began = node.host.now()
    with pytest.raises(StepError, match=said):
        database.run(node)
    # IAM is eventually consistent.
    assert 60 < node.host.now() - began < 70


def test_a_role_that_may_not_look_for_the_database_is_told_of(node: Node) -> None:
    refused = "An error occurred (AccessDeniedException) when calling GetParameter: no"
    node.host.commands["aws"] = lambda host, args, stdin: Result(254, "", refused)  # type: ignore[attr-defined]
    began = node.host.now()
    with pytest.raises(StepError) as error:
        database.run(node)
    assert str(error.value) == f"not permitted to look for the database: {refused}"
    assert 60 < node.host.now() - began < 70


def test_a_database_that_the_stack_has_not_made_is_waited_for(node: Node) -> None:
    node.host.world.parameters.clear()  # type: ignore[attr-defined]
    began = node.host.now()
    with pytest.raises(
        StepError, match=rf"^the database of slurm.accounting was not ready: no parameter {NAME} within "
    ):
        database.run(node)
    assert node.host.now() - began == pytest.approx(node.timeout("database"))


def test_the_last_copy_of_a_controllers_own_database_is_brought_once(node: Node, rds: Rds) -> None:
    private = node.host.path(node.private)
    (private / "slurm-accounting.json").write_text(json.dumps({"instance_id": "i-gone", "database": "slurm_acct_db"}))
    node.host.write_bytes(backup._file(node.private), gzip.compress(b"jobs of a year", mtime=0), mode=0o600)
    database.run(node)
    assert "the database is taken over from i-gone" in daemon.run(node)
    assert rds.loaded == "jobs of a year"
    calls: list[tuple[str, ...]] = node.host.calls  # type: ignore[attr-defined]
    assert calls.count(("systemctl", "stop", "slurmdbd")) == 1, "what it does meanwhile would be lost"
    rds.loaded = ""
    assert "the database is kept" in daemon.run(node)
    assert rds.loaded == ""


def test_a_controller_that_lives_brings_what_its_own_database_has_by_now(node: Node, rds: Rds) -> None:
    """Not the copy of the last hour; and its own database ends, whose copies nobody takes any more."""
    host, own, timer = node.host, node.identity.instance.instance_id, "hyperpod-accounting-backup.timer"
    private = host.path(node.private)
    (private / "slurm-accounting.json").write_text(json.dumps({"instance_id": own, "database": "slurm_acct_db"}))
    host.write_bytes(backup._file(node.private), gzip.compress(b"until an hour ago", mtime=0))
    host.remember()  # type: ignore[attr-defined]
    host.write(f"/etc/systemd/system/{timer}", "[Timer]\n")
    host.write("/etc/systemd/system/slurmdbd.service", f"{daemon.OURS}[Unit]\nWants=mariadb.service\n")
    host.active |= {"mariadb", "slurmdbd", timer}  # type: ignore[attr-defined]
    database.run(node)
    assert f"the database is taken over from {own}" in daemon.run(node)
    assert rds.loaded == Database().text
    calls: list[tuple[str, ...]] = host.calls  # type: ignore[attr-defined]
    names = [" ".join(call[:3]) for call in calls]
    dump = next(place for place, call in enumerate(calls) if call[0] == "mariadb-dump")
    assert names.index("systemctl stop slurmdbd") < dump, "what it writes meanwhile would be lost"
    assert not {timer, "mariadb"} & host.active  # type: ignore[attr-defined]
    assert host.read(f"/etc/systemd/system/{timer}") is None
    assert "mariadb" not in text_of(node, "/etc/systemd/system/slurmdbd.service")
    assert "the database is kept" in daemon.run(node)


def test_the_step_waits_for_the_certificates_and_as_long_as_a_database_takes(node: Node) -> None:
    found = {one.name: one for one in steps.for_orchestrator(node)}
    assert found["database"].needs == ("commands",)
    assert found["database"].limit > node.timeout("database") + node.timeout("database-login")


def test_steps_that_are_killed_anywhere_end_right_and_bring_the_copy_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: "x" * size)

    def all_steps(folder: Path, rds: Rds, kill_at: int | None) -> FakeHost:
        settings = {"slurm": {"accounting": {"database": "rds"}}}
        found = at(World(folder, settings=settings, parameters={NAME: json.dumps(PLACE)}), rds)
        host: FakeHost = found.host  # type: ignore[assignment]
        if not host.path("/fsx").is_symlink():
            host.path("/fsx").symlink_to(host.world.shared)
        found.enter("accounting")
        private = host.path(found.private)
        if not (private / "slurm-accounting.json").exists():
            private.mkdir(parents=True, exist_ok=True)
            (private / "slurm-accounting.json").write_text(
                json.dumps({"instance_id": "i-gone", "database": "slurm_acct_db"})
            )
            packed = gzip.compress(b"jobs of a year", mtime=0)
            super(FakeHost, host).write_bytes(backup._file(found.private), packed, mode=0o600)
        host.operations, host.kill_at = 0, kill_at
        for run in (database.run, daemon.run):
            run(found)
        return host

    clean = all_steps(tmp_path / "whole", Rds(), None)
    assert clean.operations > 15
    for number in range(1, clean.operations + 1):
        rds = Rds()
        with contextlib.suppress(Killed):
            all_steps(tmp_path / str(number), rds, number)
        again = all_steps(tmp_path / str(number), rds, None)
        assert rds.loaded == "jobs of a year"
        # What the client read while it was killed is in memory, and only root's.
        left = {name: told for name, told in again.tree().items() if not name.endswith(".cnf")}
        assert left == clean.tree()
        assert again.active == clean.active
