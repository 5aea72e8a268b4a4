"""MariaDB on the controller: slurmdbd's database, with a user that needs no password.

slurmdbd logs in through the database's socket as its own system user (MariaDB, "Authentication Plugin - Unix Socket").
So no file, argument or backup contains a password, and the database listens on no network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Union

from ..facts.model import Node
from ..host import units
from ..host.errors import Skip, StepError
from ..host.host import Host
from ..slurm import configure, controller
from . import remote

UNIT = "mariadb"
NAME = remote.NAME
SETTINGS = "/etc/mysql/mariadb.conf.d/90-hyperpod.cnf"
# slurm.schedmd.com/accounting.html, "Slurm Accounting Configuration After Build": both for slurmdbd's long changes.
# The pool is memory that is taken as it is used; a controller has 32 GiB.
TEXT = """# Made by the HyperPod lifecycle scripts.
[mysqld]
skip-networking
innodb_buffer_pool_size=2G
innodb_lock_wait_timeout=900
"""
# As root; the database's own unit has another user. The file system is still mounted then, and slurmdbd, which comes
# after the database, has written the last jobs.
STOPS = """# Made by the HyperPod lifecycle scripts.
[Unit]
{after}

[Service]
ExecStop=-+/usr/bin/timeout --kill-after=5 120 {bin}/hyperpod-accounting-backup
"""


def run(node: Node) -> str:
    """Step ``database``. It is separate, because it does not wait for the file system."""
    if node.role != "controller":
        raise Skip("the controller has it")
    wanted = node.parameters.accounting
    if wanted is not None and wanted.database == "rds":
        return remote.settle(node)
    controller.await_agent(node)
    conf = configure.read(node.host)
    if "slurmdbd" in conf.get("AccountingStorageType"):
        raise Skip("slurm.conf names a slurmdbd, which has its own")
    host, user = node.host, conf.get("SlurmUser", "root")
    if not units.exists(host, UNIT):
        raise StepError("MariaDB is not installed, which HyperPod's image has: no mariadb.service")
    host.write(SETTINGS, TEXT)
    start(node)
    # One that ran before, as the image has it, has not read them yet.
    if execute(host, "SELECT @@skip_networking;").strip() != "1":
        start(node, restart=True)
    execute(host, f"CREATE DATABASE IF NOT EXISTS `{NAME}`;\n" + remote.admit(user, "localhost", "VIA unix_socket"))
    return f"MariaDB up, {user} writes to {NAME}"


def start(node: Node, restart: bool = False) -> None:
    """Start MariaDB, and have it copied whenever it stops."""
    text = STOPS.format(
        bin=node.host.settings.install_folder + "/bin", after=units.after_mount(node.parameters.fsx_mount)
    )
    node.host.write(f"{units.UNITS}/{UNIT}.service.d/20-hyperpod.conf", text)
    units.start(node.host, UNIT, restart=restart)


def execute(host: Host, sql: "Union[str, Path]", name: str = "", timeout: float = 60) -> str:
    """Run SQL as root, who needs no password either, and return the answer."""
    return host.run("mariadb", *remote.CLIENT_WORDS, *([name] if name else []), stdin=sql, timeout=timeout).out
