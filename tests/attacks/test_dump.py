"""What somebody writes in place of the accounting's copy, which the next controller puts into its database as root."""

import gzip
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hyperpod_node.accounting import backup, database
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Host, Result
from hyperpod_node.host.settings import Settings

from tests.lifecycle.rig import FakeHost

PRIVATE = "/fsx/.hyperpod/private"
FILE = f"{PRIVATE}/slurm-accounting.sql.gz"
# Commands of the client's own, in the forms that it takes in a file; the server knows none of them.
PLANTED = ("\\! touch {made}\n", "system touch {made}\n", "source {other}\n", "\\. {other}\n")


def plant(host: Host, text: str, mode: int = 0o600) -> None:
    path = host.path(FILE)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))
    path.chmod(mode)


def load(host: FakeHost) -> list[str]:
    """What of the copy comes to the database."""
    found: list[str] = []

    def execute(sql: Path) -> str:
        found.append(sql.read_text())
        return ""

    backup._load(host, PRIVATE, execute)
    return found


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o620, 0o602])
def test_a_copy_that_others_can_reach_is_not_loaded(host: FakeHost, mode: int) -> None:
    assert load(host) == []
    plant(host, "SELECT 1;\n")
    assert load(host) == ["SELECT 1;\n"]
    plant(host, "SELECT 1;\n", mode)
    with pytest.raises(StepError, match=r"slurm-accounting.sql.gz, is not loaded: it is not root's alone"):
        load(host)


def test_a_copy_of_another_users_and_a_link_are_not_loaded(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(host, "SELECT 1;\n")
    path = host.path(FILE)
    with monkeypatch.context() as patched:
        uid = os.geteuid()
        patched.setattr(os, "geteuid", lambda: uid + 1)
        with pytest.raises(StepError, match="not root's alone"):
            load(host)
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")
    with pytest.raises(StepError, match="none is followed"):
        load(host)


def test_the_client_gets_a_copy_as_sql_alone(host: FakeHost) -> None:
    """MariaDB, "mariadb Command-Line Client": --binary-mode switches its commands off where it reads no terminal."""
    asked: list[tuple[list[str], str | None]] = []

    def mariadb(_: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        asked.append((list(args), stdin))
        return Result(0)

    host.commands["mariadb"] = mariadb
    text = "".join(PLANTED)
    plant(host, text)
    backup._load(host, PRIVATE, lambda sql: database.execute(host, sql, "slurm_acct_db", backup.PATIENCE))
    ((args, stdin),) = asked
    assert "--binary-mode" in args
    assert stdin == text


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Path]:
    """The socket of a MariaDB of this machine's that anybody is root of, and its folder."""
    data, socket = tmp_path / "data", tmp_path / "socket"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}"], check=True, **quiet)  # type: ignore[call-overload]
    words = ["--no-defaults", "--user=root", f"--datadir={data}", f"--socket={socket}", "--skip-networking"]
    with subprocess.Popen(["mariadbd", *words, "--skip-grant-tables"], **quiet) as daemon:  # type: ignore[call-overload]
        try:
            end = time.monotonic() + 30
            while not socket.exists() and time.monotonic() < end:
                time.sleep(0.1)
            yield socket
        finally:
            daemon.kill()


@pytest.mark.root
@pytest.mark.parametrize("planted", PLANTED, ids=["!", "system", "source", "dot"])
def test_a_real_client_does_nothing_else_for_a_dump(
    server: Path, tmp_path: Path, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other, home = tmp_path / "made", tmp_path / "other.sql", tmp_path / "home"
    other.write_text(f"\\! touch {made}\n")
    home.mkdir()
    (home / ".my.cnf").write_text(f"[client]\nsocket={server}\n")
    monkeypatch.setenv("HOME", str(home))
    host, sql = Host(Settings(root=Path("/"))), tmp_path / "dump.sql"
    sql.write_text("SELECT 'whole';\n")
    assert database.execute(host, sql) == "whole\n"
    sql.write_text(planted.format(made=made, other=other))
    with pytest.raises(StepError, match=r"You have an error in your SQL syntax|Unknown command"):
        database.execute(host, sql)
    assert not made.exists()
    # As the client was told before, the same is done.
    command = ["mariadb", f"--socket={server}", "--batch"]
    subprocess.run(command, input=f"source {sql}\n", text=True, capture_output=True, check=False)
    assert made.exists()
