"""slurmdbd on the controller: HyperPod's if slurm.conf names one, otherwise ours with our database."""

from __future__ import annotations

import re
from typing import Dict, Tuple

from ..facts.model import Accounting, Node
from ..host import units
from ..host.errors import Skip, StepError
from ..slurm import conf as slurm_conf
from ..slurm import configure, shared_queue
from . import backup, database, remote

PORT = 6819
# Where HyperPod's image has it; the unit names it by its whole path.
PROGRAM = "/opt/slurm/sbin/slurmdbd"
OURS = "# Made by the HyperPod lifecycle scripts.\n"
UNIT_TEXT = (
    OURS
    + """[Unit]
Description=Slurm database daemon
After=munge.service{mariadb} network-online.target
Wants=network-online.target{mariadb}

[Service]
Type=simple
ExecStart={program} -D -s
ExecReload=/bin/kill -HUP $MAINPID
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
"""
)
# Units of an earlier release, which followed the administrator's password.
_BEFORE = "hyperpod-accounting-password"
DROP_IN = """# Made by the HyperPod lifecycle scripts.
[Unit]
After=munge.service{mariadb}
StartLimitIntervalSec=0

[Service]
Restart=on-failure
RestartSec=2
"""


def run(node: Node) -> str:
    """Step ``accounting``."""
    wanted = node.parameters.accounting
    if node.role != "controller" or wanted is None:
        raise Skip("the controller has it")
    conf = configure.read(node.host)
    # One that HyperPod has set up keeps the jobs in its own database; ours on RDS takes its place.
    if wanted.database == "local" and "slurmdbd" in conf.get("AccountingStorageType"):
        return _is_of_hyperpod(node, conf)
    return _own(node, conf, wanted)


def _is_of_hyperpod(node: Node, conf: slurm_conf.SlurmConf) -> str:
    """Whether slurmdbd is HyperPod's and already set up (Developer Guide, "Using an external accounting database")."""
    host = node.host
    settings = _settings(host.read(f"{host.settings.slurm_etc}/slurmdbd.conf") or "")
    where = settings.get("storagehost", "localhost")
    if not units.exists(host, "slurmdbd") or not settings:
        return f"slurm.conf names {conf.get('AccountingStorageHost', 'localhost')}, which keeps its own copies"
    if where not in ("localhost", "127.0.0.1", host.hostname(), node.identity.instance.address):
        return f"HyperPod's, in the database {where}, which keeps its own copies"
    name = settings.get("storageloc", database.NAME)
    database.start(node)
    said = backup.settle(node, name)
    units.start(node.host, "slurmdbd")
    return f"HyperPod's, {said}"


def _own(node: Node, conf: slurm_conf.SlurmConf, wanted: Accounting) -> str:
    host = node.host
    if host.which("slurmdbd") is None:
        raise StepError("Slurm has no accounting daemon: command not found: slurmdbd")
    user, etc, on_rds = conf.get("SlurmUser", "root"), host.settings.slurm_etc, wanted.database == "rds"
    # Before the daemon makes tables.
    taken, storage = _on_rds(node) if on_rds else _on_the_controller(node, user)
    if taken != backup.KEPT:
        # slurmctld ends where this file has another id than the database, and says to remove it ("CLUSTER ID MISMATCH",
        # seen in the rehearsal). It makes an id up where it runs without a database first.
        for folder in (shared_queue.folder(node, conf), conf.get("StateSaveLocation", shared_queue.STATE)):
            host.remove(f"{folder}/clustername")
    text = render(host.hostname(), user, wanted.retention_months, storage)
    fresh = host.write(f"{etc}/slurmdbd.conf", text, 0o600, user)
    mariadb = "" if on_rds else " mariadb.service"
    host.write(f"{units.UNITS}/slurmdbd.service.d/20-hyperpod.conf", DROP_IN.format(mariadb=mariadb))
    unit = f"{units.UNITS}/slurmdbd.service"
    if not units.exists(host, "slurmdbd") or (host.read(unit) or "").startswith(OURS):
        host.write(unit, UNIT_TEXT.format(program=PROGRAM, mariadb=mariadb))
    units.start(node.host, "slurmdbd", restart=fresh, wait=False)
    began = host.now()

    def answers() -> bool:
        if host.answers("127.0.0.1", PORT):
            return True
        raise units.not_yet(host, "slurmdbd", "nothing listens", began)

    host.poll(f"slurmdbd did not listen on port {PORT}", answers, node.timeout("slurm"))
    return f"slurmdbd up, the database is {taken}, jobs are kept for {wanted.retention_months} months"


def _on_the_controller(node: Node, user: str) -> Tuple[str, str]:
    """Return the origin of the history, and the lines of slurmdbd.conf about the database."""
    return backup.settle(node, database.NAME), f"StorageHost=localhost\nStorageUser={user}"


def _on_rds(node: Node) -> Tuple[str, str]:
    """Like ``_on_the_controller``, for the database that the step ``database`` has found."""
    host, place = node.host, remote.place(node.host)
    if host.read(f"{units.UNITS}/{_BEFORE}.timer") is not None:
        units.stop(host, f"{_BEFORE}.timer")
        for name in (
            f"{units.UNITS}/{_BEFORE}.timer",
            f"{units.UNITS}/{_BEFORE}.service",
            f"{host.settings.install_folder}/bin/{_BEFORE}",
        ):
            host.remove(name)
    login = remote.login(node, place)
    return backup.load_into_rds(node, place, login), remote.storage(host, place, login)


def render(hostname: str, user: str, months: int, storage: str) -> str:
    """Return slurmdbd.conf. The daemon refuses a file that others may read. ``storage``: the lines about its database,
    which have a password only if it is not on the controller (database.py, remote.py).
    """
    kept = "\n".join(
        f"Purge{what}After={months}months" for what in ("Event", "Job", "Resv", "Step", "Suspend", "TXN", "Usage")
    )
    return f"""# Made by the HyperPod lifecycle scripts.
AuthType=auth/munge
DbdHost={hostname}
DbdPort={PORT}
SlurmUser={user}
StorageType=accounting_storage/mysql
{storage}
StorageLoc={database.NAME}
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmdbd.pid
{kept}
"""


def _settings(text: str) -> Dict[str, str]:
    lines = (line.split("#")[0] for line in text.splitlines())
    return {found[1].lower(): found[2] for line in lines if (found := re.match(r"\s*(\w+)\s*=\s*(\S+)", line))}
