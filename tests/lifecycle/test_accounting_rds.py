"""Slurm's accounting in a database of RDS that is not there: it is waited for, its password read, kept and renewed."""

# ruff: noqa: ARG002 (fakes have the signatures of what they stand for)
from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hyperpod_node import fsx, steps
from hyperpod_node.accounting import backup, daemon, database, remote
from hyperpod_node.errors import StepError
from hyperpod_node.host import Result
from hyperpod_node.model import Node

from tests.lifecycle.accounting_rig import Database, with_accounting
from tests.lifecycle.commands import COMMANDS
from tests.lifecycle.rig import FakeHost, Killed, World

CONF = "/opt/slurm/etc/slurmdbd.conf"
PLACE = {"host": "db.example.rds.amazonaws.com", "port": 3306, "secret": "arn:aws:secretsmanager:us-west-2:1:secret:x"}
AUTHORITY = "/opt/hyperpod/lib/hyperpod_node/accounting/rds-ca.pem"
NAME = "/hyperpod/mine/accounting-database"


class Rds:
    """What RDS, its secret and its client say: which password is right, and which one the secret has."""

    def __init__(self) -> None:
        self.right = self.told = r"a#b\c"
        self.loaded = self.created = ""
        self.refused_by_role = False

    def aws(self, host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        if args[1] != "secretsmanager":
            return COMMANDS["aws"](host, args, stdin)
        if self.refused_by_role:
            return Result(254, "", "An error occurred (AccessDeniedException) when calling GetSecretValue: no")
        assert args[args.index("--secret-id") + 1] == PLACE["secret"]
        return Result(0, json.dumps({"SecretString": json.dumps({"username": "slurm", "password": self.told})}))

    def mariadb(self, host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        path = Path(args[1].removeprefix("--defaults-file="))
        assert path.stat().st_mode & 0o777 == 0o600
        text = path.read_text()
        assert text.splitlines()[:4] == ["[client]", f"host={PLACE['host']}", f"port={PLACE['port']}", "user=slurm"]
        # MariaDB, "mariadb Command-Line Client": no name but that of the authority's certificate.
        end = f"\nssl-ca={AUTHORITY}\nssl-verify-server-cert\nconnect-timeout=10\n"
        assert text.endswith(end)
        given = text.split('password="')[1].split('"\n')[0].replace("\\\\", "\\")
        if given != self.right:
            return Result(1, "", "ERROR 1045 (28000): Access denied for user 'slurm'@'10.1.0.10' (using password: YES)")
        if stdin and stdin.startswith("CREATE DATABASE IF NOT EXISTS `slurm_acct_db` "):
            self.created = stdin
        if stdin and args[-1] == "slurm_acct_db":
            assert self.created
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


def test_slurmdbd_gets_the_place_the_password_and_the_authority_and_nobody_else_does(node: Node, rds: Rds) -> None:
    assert database.run(node) == "db.example.rds.amazonaws.com lets us in"
    assert "the database is new" in daemon.run(node)
    assert "CHARACTER SET utf8mb4" in rds.created
    text, path = text_of(node, CONF), node.host.path(CONF)
    assert "StorageHost=db.example.rds.amazonaws.com\nStoragePort=3306\nStorageUser=slurm\n" in text
    assert "StoragePass=a\\#b\\\\c\nStorageParameters=SSL_CA=/" in text
    assert (path.stat().st_mode & 0o777, node.host.owner(CONF)) == (0o600, "slurm")
    assert {"slurmdbd", "hyperpod-accounting-password.timer"} <= node.host.active  # type: ignore[attr-defined]
    assert "mariadb" not in node.host.active  # type: ignore[attr-defined]
    drop_in = text_of(node, "/etc/systemd/system/slurmdbd.service.d/20-hyperpod.conf")
    assert "ExecStartPre=-+/opt/hyperpod/bin/hyperpod-accounting-password renew\n" in drop_in
    assert not [name for name in node.host.tree() if name.endswith(".cnf")]  # type: ignore[attr-defined]
    node.host.changes.clear()
    database.run(node)
    assert daemon.run(node).startswith("slurmdbd up, the database is kept")
    assert not node.host.changes


def test_a_password_that_is_refused_is_told_of_without_the_password(node: Node, rds: Rds) -> None:
    rds.told = "an old one"
    with pytest.raises(
        StepError,
        match=r"^the database at \S+:3306 did not let us in with the password of arn:\S+ within 180 s: ERROR 1045 ",
    ) as refused:
        database.run(node)
    assert "an old one" not in str(refused.value)


def test_a_role_that_may_not_read_the_password_is_told_of(node: Node, rds: Rds) -> None:
    database.run(node)
    rds.refused_by_role = True
    said = r"^may not read the password: An error occurred \(AccessDeniedException\) when calling GetSecretValue: no$"
    with pytest.raises(StepError, match=said):
        remote.login(node)
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
    assert str(error.value) == f"may not look for the database: {refused}"
    assert 60 < node.host.now() - began < 70


def test_a_password_is_only_put_where_the_scripts_have_put_one(node: Node, rds: Rds) -> None:
    database.run(node)
    node.host.write("/etc/hyperpod/node.json", json.dumps({"region": "us-west-2"}))
    for text in ("", "StorageUser=slurm\nStoragePass=other\n"):
        node.host.write(CONF, text)
        with pytest.raises(StepError, match=rf"^{CONF} is not the lifecycle scripts' any more$"):
            remote.renew(node.host)
        assert text_of(node, CONF) == text
        assert remote.check(node.host) == "refused: slurmdbd started again"


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
    host.write("/etc/hyperpod/node.json", json.dumps({"instance_id": own}))
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


def test_a_new_password_is_read_only_where_the_old_one_is_refused(node: Node, rds: Rds) -> None:
    database.run(node)
    daemon.run(node)
    node.host.write("/etc/hyperpod/node.json", json.dumps({"region": "us-west-2"}))
    before = text_of(node, CONF)
    rds.told = "not needed yet"
    assert remote.renew(node.host) == "kept"
    assert remote.check(node.host) == "taken"
    rds.right = rds.told = r"new\#one"
    assert remote.check(node.host) == "refused: slurmdbd started again"
    assert node.host.calls[-1] == ("systemctl", "restart", "slurmdbd")  # type: ignore[attr-defined]
    assert remote.renew(node.host) == "renewed"
    assert text_of(node, CONF) == before.replace(r"a\#b\\c", r"new\\\#one")
    assert remote.known(node.host)[1] == remote.Login("slurm", r"new\#one")
    assert node.host.owner(CONF) == "slurm"


def test_a_database_that_is_away_starts_nothing_again(node: Node, rds: Rds) -> None:
    database.run(node)
    daemon.run(node)
    node.host.commands["mariadb"] = lambda host, args, stdin: Result(1, "", "ERROR 2002 (HY000): Can't connect")  # type: ignore[attr-defined]
    calls = len(node.host.calls)  # type: ignore[attr-defined]
    assert "2002" in remote.check(node.host)
    assert remote.renew(node.host) == "kept"
    assert not any(call[:2] == ("systemctl", "restart") for call in node.host.calls[calls:])  # type: ignore[attr-defined]


def test_the_step_waits_for_the_certificates_and_as_long_as_a_database_takes(node: Node) -> None:
    found = {one.name: one for one in steps.for_orchestrator(node)}
    assert found["database"].needs == ("commands",)
    assert found["database"].limit > node.timeout("database") + node.timeout("database-login")


def test_steps_that_are_killed_anywhere_end_right_and_bring_the_copy_once(tmp_path: Path) -> None:
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
