"""Slurm's accounting on a controller that is not there: the database, its copy, accounts and limits."""

import contextlib
import dataclasses
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hyperpod_node.accounting import accounts, backup, daemon, database, remote
from hyperpod_node.facts.model import Node
from hyperpod_node.host.errors import Skip, StepError
from hyperpod_node.host.host import Result
from hyperpod_node.storage import fsx

from tests.lifecycle.accounting.rig import SLURM, Database, booted, with_accounting
from tests.lifecycle.rig import FakeHost, Killed, World
from tests.lifecycle.slurm_rig import two_controllers

SETTINGS = {"slurm": SLURM}
PRIVATE = ".hyperpod/private"


def ready(world: World, tables: Database) -> Node:
    node = with_accounting(world, tables).node()
    fsx.run(node)
    node.enter("accounting")
    return node


def test_a_database_that_the_image_started_is_restarted_to_close_its_network(world: World, tables: Database) -> None:
    node = ready(world, tables)
    host = node.host
    assert isinstance(host, FakeHost)
    host.active.add("mariadb")

    told: list[str | None] = []

    def mariadb(one: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        told.append(stdin)
        asked = stdin is not None and "@@skip_networking" in stdin
        return Result(0, f"{int(one.ran('systemctl', 'restart', 'mariadb'))}\n" if asked else "")

    host.commands["mariadb"] = mariadb
    assert database.run(node) == "MariaDB up, slurm writes to slurm_acct_db"
    assert host.calls.count(("systemctl", "restart", "mariadb")) == 1
    database.run(node)
    assert host.calls.count(("systemctl", "restart", "mariadb")) == 1, "and not again"
    # MariaDB, "Authentication Plugin - Unix Socket": the system's user of this name needs no password.
    assert told[-1] == (
        "CREATE DATABASE IF NOT EXISTS `slurm_acct_db`;\n"
        "CREATE OR REPLACE USER 'slurm'@'localhost' IDENTIFIED VIA unix_socket;\n"
        f"GRANT {remote.RIGHTS} ON `slurm\\_acct\\_db`.* TO 'slurm'@'localhost';\n"
    )


def test_a_controller_boots_with_the_database_before_slurmctld_and_the_accounts_after(
    world: World, tables: Database
) -> None:
    host = booted(world, tables)
    started = [call[-1] for call in host.calls if call[:2] == ("systemctl", "start")]
    assert started.index("mariadb") < started.index("slurmdbd") < started.index("slurmctld")
    assert {"mariadb", "slurmdbd", "hyperpod-accounting-backup.timer"} <= host.active
    assert tables.associations["vision", ""]["ParentName"] == "lab"
    assert tables.associations["vision", ""]["Share"] == "3"
    assert tables.associations["vision", ""]["DefaultQOS"] == "normal"
    assert tables.associations["lab", ""]["GrpTRES"] == "gres/gpu=16"
    assert {user for _, user in tables.associations} == {"", "ada", "ubuntu"}
    assert tables.qos["urgent"] == {
        "Name": "urgent", "Priority": "10", "Preempt": "normal", "MaxTRESPU": "gres/gpu=8", "MaxWall": "2-00:00:00",
    }  # fmt: skip
    conf = host.text("/opt/slurm/etc/hyperpod.conf")
    assert "AccountingStorageHost=10.1.0.10\n" in conf
    assert "PreemptType=preempt/qos\nPreemptMode=REQUEUE\n" in conf
    assert 'PartitionName=DEFAULT TRESBillingWeights="CPU=0.001,GRES/gpu=1.0"' in conf


def test_no_password_is_anywhere_and_only_its_daemon_reads_its_settings(world: World, tables: Database) -> None:
    host = booted(world, tables)
    path = "/opt/slurm/etc/slurmdbd.conf"
    assert "Pass" not in host.text(path)
    assert (host.path(path).stat().st_mode & 0o777, host.owner(path)) == (0o600, "slurm")
    assert "PurgeJobAfter=13months" in host.text(path)
    assert "skip-networking" in host.text(database.SETTINGS)


def test_the_last_copy_is_made_while_the_file_system_is_still_mounted(world: World, tables: Database) -> None:
    """systemd 249, mount.c: with x-systemd.automount a mount is not before remote-fs.target, so it may go first."""
    drop_in = booted(world, tables).text("/etc/systemd/system/mariadb.service.d/20-hyperpod.conf")
    assert "After=remote-fs.target fsx.mount\n" in drop_in
    assert "ExecStop=-+" in drop_in


def test_a_second_boot_changes_nothing(world: World, tables: Database) -> None:
    before, told = booted(world, tables).tree(), list(tables.commands)
    host = booted(world, tables)
    assert host.tree() == before
    assert tables.commands == told
    assert not any(call[:2] == ("systemctl", "restart") for call in host.calls)


def test_steps_that_are_killed_anywhere_end_right_when_they_are_run_again(tmp_path: Path) -> None:
    whole = Database()
    clean = all_steps(tmp_path / "whole", whole, None)
    assert clean.operations > 30
    for number in range(1, clean.operations + 1):
        tables = Database()
        with contextlib.suppress(Killed):
            all_steps(tmp_path / str(number), tables, number)
        again = all_steps(tmp_path / str(number), tables, None)
        assert again.tree() == clean.tree()
        assert again.active == clean.active
        assert (tables.qos, tables.associations) == (whole.qos, whole.associations)


def all_steps(folder: Path, tables: Database, kill_at: int | None) -> FakeHost:
    """The three steps on a controller; all that they need is there."""
    world = World(folder, settings=SETTINGS)
    host = with_accounting(world, tables)
    node = host.node()
    if not host.path("/fsx").is_symlink():
        host.path("/fsx").symlink_to(world.shared)
    host.remember()
    host.operations, host.kill_at = 0, kill_at
    for run in (database.run, daemon.run, accounts.run):
        run(node)
    return host


def test_workers_and_login_nodes_have_none(world: World) -> None:
    for run in (daemon.run, database.run, accounts.run):
        with pytest.raises(Skip, match=r"^the controller has (it|them)$"):
            run(world.node("worker").node())


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ("slurmdbd", "^Slurm has no accounting daemon: command not found: slurmdbd$"),
        ("", r"^MariaDB is not installed, which HyperPod's image has: no mariadb\.service$"),
    ],
)
def test_what_the_image_lacks_is_named(world: World, tables: Database, missing: str, why: str) -> None:
    node = ready(world, tables)
    host = with_accounting(world, tables)
    if missing:
        del host.commands[missing]
    else:
        host.path("/lib/systemd/system/mariadb.service").unlink()
    node.host = host
    with pytest.raises(StepError, match=why):
        (daemon if missing else database).run(node)


# The copy on the shared file system


def owner(world: World, instance: str) -> None:
    record = world.shared / PRIVATE / "slurm-accounting.json"
    record.write_text(json.dumps({"instance_id": instance, "database": "slurm_acct_db"}))


def test_a_new_controller_begins_with_the_last_copy(world: World, tables: Database) -> None:
    tables.text = "jobs of a year\n-- Dump completed on 2026-11-22\n"
    node = ready(world, tables)
    backup.settle(node, "slurm_acct_db")
    node.host.remember()  # type: ignore[attr-defined]
    backup.save(node.host, node.shared)
    dump = f"--result-file={node.host.path(backup.FOLDER)}/dump.sql"
    # A copy of one moment, while slurmdbd writes on.
    saved = ("mariadb-dump", "--single-transaction", "--quick", dump, "slurm_acct_db")
    assert node.host.calls[-1] == saved  # type: ignore[attr-defined]
    owner(world, "i-gone")
    fresh = Database()
    node.host = host = with_accounting(world, fresh)
    assert backup.settle(node, "slurm_acct_db") == "taken over from i-gone"
    assert fresh.text == tables.text
    loaded = ("mariadb", "--batch", "--skip-column-names", "--binary-mode", "slurm_acct_db")
    assert host.calls[:2] == [("systemctl", "stop", "slurmdbd"), loaded]
    assert backup.settle(node, "slurm_acct_db") == "kept"
    assert not list(node.host.path(backup.FOLDER).iterdir())


def test_a_state_that_slurmctld_made_without_the_database_does_not_stop_it(world: World, tables: Database) -> None:
    node = ready(world, tables)
    conf = node.host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text("StateSaveLocation=/var/spool/slurmctld\n" + conf.read_text())
    known = node.host.path("/var/spool/slurmctld/clustername")
    known.parent.mkdir(parents=True)
    known.write_text("mine|77")
    # The queue that moves to the shared file system takes it along.
    node.parameters_ = dataclasses.replace(node.parameters, shared_queue=True)
    daemon.run(node)
    assert not known.exists()
    known.write_text("mine|1418")
    daemon.run(node)
    assert known.exists()


def test_a_controller_that_is_gone_without_a_copy_is_told_of(world: World, tables: Database) -> None:
    node = ready(world, tables)
    owner(world, "i-gone")
    assert backup.settle(node, "slurm_acct_db") == "new"
    said = "the controller before, i-gone, left no copy of the accounting: it begins anew"
    assert node.warnings["accounting"] == [said]


def test_the_accounting_of_a_controller_that_is_still_there_is_not_taken(world: World, tables: Database) -> None:
    two_controllers(with_accounting(world, tables))
    node = ready(world, tables)
    owner(world, "i-2")
    with pytest.raises(
        StepError, match=r"^the accounting is i-2's, a controller that is still there; this node is i-\d+$"
    ):
        backup.settle(node, "slurm_acct_db")


def test_a_copy_that_is_not_whole_is_refused_and_the_last_one_stays(world: World, tables: Database) -> None:
    node = ready(world, tables)
    owner(world, "i-gone")
    packed = world.shared / PRIVATE / "slurm-accounting.sql.gz"
    packed.write_bytes(gzip.compress(b"x" * 1000)[:-9])
    packed.chmod(0o600)
    with pytest.raises(
        StepError,
        match=r"^the copy of the accounting, /fsx/\S+/slurm-accounting\.sql\.gz, cannot be read: Compressed ",
    ):
        backup.settle(node, "slurm_acct_db")
    owner(world, node.identity.instance.instance_id)
    node.host.remember()  # type: ignore[attr-defined]
    tables.text = "half of the jobs\n"
    before = packed.read_bytes()
    with pytest.raises(StepError, match=r"^mariadb-dump ended before the end of the database$"):
        backup.save(node.host, node.shared)
    assert packed.read_bytes() == before


def test_a_controller_that_was_replaced_does_not_overwrite_the_copy_of_the_new_one(
    world: World, tables: Database
) -> None:
    node = ready(world, tables)
    owner(world, "i-new")
    node.host.remember("i-old")  # type: ignore[attr-defined]
    with pytest.raises(StepError, match=r"^the accounting is i-new's by now, not i-old's$"):
        backup.save(node.host, node.shared)


def test_the_daemon_that_hyperpod_has_set_up_is_kept_as_it_is_and_copied(world: World, tables: Database) -> None:
    node = ready(world, tables)
    conf = node.host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text("AccountingStorageType=accounting_storage/slurmdbd\n" + conf.read_text())
    with pytest.raises(Skip, match=r"^slurm\.conf names a slurmdbd, which has its own$"):
        database.run(node)
    own = node.host.path("/opt/slurm/etc/slurmdbd.conf")
    own.write_text("StorageHost=localhost\nStorageLoc=theirs\nStoragePass=x\n")
    unit = node.host.path("/etc/systemd/system/slurmdbd.service")
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text("[Service]\n")
    assert daemon.run(node) == "HyperPod's, new"
    assert own.read_text() == "StorageHost=localhost\nStorageLoc=theirs\nStoragePass=x\n"
    assert json.loads((world.shared / PRIVATE / "slurm-accounting.json").read_text())["database"] == "theirs"
    address = node.identity.instance.address
    for name in ("", "127.0.0.1", node.host.hostname(), address):
        own.write_text(f"storagehost = {name} # ours\n" if name else "DbdPort=6819\n")
        assert daemon.run(node) == "HyperPod's, kept"
    own.write_text("StorageHost=db.example.com\n")
    assert daemon.run(node) == "HyperPod's, in the database db.example.com, which keeps its own copies"
    for text, host in (("", "localhost"), ("AccountingStorageHost=other\n", "other")):
        own.write_text("")
        conf.write_text(text + conf.read_text())
        assert daemon.run(node) == f"slurm.conf names {host}, which keeps its own copies"


def test_slurmdbd_is_waited_for_until_it_listens(
    world: World, tables: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = ready(world, tables)
    monkeypatch.setattr(FakeHost, "answers", lambda host, address, port: (address, port) != ("127.0.0.1", 6819))
    with pytest.raises(StepError, match=r"^slurmdbd did not listen on port 6819 within 300 s: nothing listens$"):
        daemon.run(node)
    monkeypatch.undo()
    assert daemon.run(node) == "slurmdbd up, the database is kept, jobs are kept for 13 months"
