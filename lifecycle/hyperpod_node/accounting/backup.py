"""``hyperpod-accounting-backup``: a copy of the database on the shared file system, for the next controller.

The database is on the controller's own disk: InnoDB needs its disk's locks and syncs, a second controller on the same
files would destroy them, and a file system that does not answer would stop Slurm. HyperPod gives a replaced controller
a new disk. So the copy is made every hour and when the database stops, and a new controller starts with the last copy.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Callable, Dict

from ..facts import node_record
from ..facts.model import Node
from ..host import safe_open, units
from ..host.errors import StepError
from ..host.host import Host
from ..host.settings import Settings
from . import database, remote

FOLDER, UNIT = remote.FOLDER, "hyperpod-accounting-backup"
# The result of ``settle`` if nothing changed.
KEPT = "kept"
# The last line of a whole one (mariadb-dump(1), --comments).
COMPLETE = b"-- Dump completed"
# Seconds. A million jobs are about a gigabyte of text.
PATIENCE = 1800.0
SERVICE = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Copies Slurm's accounting to the shared file system
After=mariadb.service

[Service]
Type=oneshot
ExecStart={bin}/hyperpod-accounting-backup
Nice=10
"""
TIMER = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Copies Slurm's accounting every hour

[Timer]
OnActiveSec=600
OnUnitActiveSec=3600
RandomizedDelaySec=60

[Install]
WantedBy=timers.target
"""


def settle(node: Node, name: str) -> str:
    """Take over the accounting of the previous controller, and copy our own from now on. Return what was done, in
    words.

    The shared file system records whose database the copy is.
    """
    host, own = node.host, node.identity.instance.instance_id
    record = _record(host, node.shared)
    known = record.get("instance_id", own)
    if known == own:
        said = KEPT if record else "new"
    elif known in {one.instance_id for one in node.identity.in_role("controller", node.parameters.groups)}:
        raise StepError(f"the accounting is {known}'s, a controller that is still there; this node is {own}")
    elif _load(host, node.private, lambda sql: database.execute(host, sql, name, timeout=PATIENCE)):
        said = f"taken over from {known}"
    else:
        said = "new"
        node.warn(f"the controller before, {known}, left no copy of the accounting: it begins anew")
    _write_record(host, node.shared, {"instance_id": own, "database": name})
    _units(node)
    return said


def load_into_rds(node: Node, place: remote.Place, login: remote.Login) -> str:
    """Load the last copy of a controller's own database into the one on RDS, at its first use. Return what was done, in
    words. A run that is killed before it is recorded loads all of it again.

    This node's own database may have more than its last copy: slurmdbd stops first, and slurmctld keeps its reports
    until there is a slurmdbd again.
    """
    host, record = node.host, _record(node.host, node.shared)
    if record.get("host") == place.host:
        _retire(host)
        return KEPT
    own = record.get("instance_id")
    if own == node.identity.instance.instance_id and units.active(host, database.UNIT):
        host.run("systemctl", "stop", "slurmdbd", check=False, timeout=120)
        save(host, node.shared)
    loaded = own is not None and _load(
        host, node.private, lambda sql: remote.execute(host, place, login, sql, remote.NAME, PATIENCE)
    )
    _write_record(host, node.shared, {"host": place.host})
    _retire(host)
    return f"taken over from {own}" if loaded else "new"


def _retire(host: Host) -> None:
    """Stop the node's own database, whose copies nobody reads any more. Its files stay."""
    if host.read(f"{units.UNITS}/{UNIT}.timer") is None:
        return
    units.stop(host, f"{UNIT}.timer", database.UNIT)
    host.remove(f"{units.UNITS}/{UNIT}.timer")


def _units(node: Node) -> None:
    host, folder = node.host, node.host.settings.install_folder + "/bin"
    host.write(f"{units.UNITS}/{UNIT}.service", SERVICE.format(bin=folder))
    host.write(f"{units.UNITS}/{UNIT}.timer", TIMER)
    units.start(node.host, f"{UNIT}.timer")


def _file(private: str) -> str:
    return f"{private}/slurm-accounting.sql.gz"


def _record(host: Host, shared: str) -> Dict[str, Any]:
    return dict(json.loads(host.read(f"{shared}/private/slurm-accounting.json") or "{}"))


def _write_record(host: Host, shared: str, record: Dict[str, Any]) -> None:
    host.write(f"{shared}/private/slurm-accounting.json", json.dumps(record, sort_keys=True) + "\n", mode=0o600)


def _load(host: Host, private: str, execute: Callable[[Path], str]) -> bool:
    """Load the copy into the database; a second run changes nothing. False without a copy.

    Raises StepError if anybody else could have written it: its statements run as the database's root.
    """
    name = _file(private)
    try:
        with safe_open.place(host.settings.root, name) as path, safe_open.open_without_links(path) as found:
            known = os.fstat(found)
    except FileNotFoundError:
        return False
    if known.st_uid != os.geteuid() or known.st_mode & 0o077:
        raise StepError(f"the copy of the accounting, {name}, is not loaded: it is not root's alone")
    data = host.read_bytes(name) or b""
    # A slurmdbd that HyperPod started has already made tables.
    host.run("systemctl", "stop", "slurmdbd", check=False, timeout=120)
    host.folder(FOLDER, mode=0o700)
    text = f"{FOLDER}/dump.sql"
    try:
        try:
            with gzip.open(io.BytesIO(data)) as packed, host.path(text).open("wb") as file:
                shutil.copyfileobj(packed, file)
        except (OSError, EOFError) as error:
            raise StepError(f"the copy of the accounting, {name}, cannot be read: {error}") from None
        execute(host.path(text))
    finally:
        host.remove(text)
    return True


def save(host: Host, shared: str) -> str:
    """Copy the database. Raises StepError, and keeps the last copy, if that is another controller's by now."""
    record = _record(host, shared)
    own = node_record.read(host).instance.instance_id
    if record.get("instance_id") != own:
        raise StepError(f"the accounting is {record.get('instance_id')}'s by now, not {own}'s")
    host.folder(FOLDER, mode=0o700)
    text, packed = f"{FOLDER}/dump.sql", io.BytesIO()
    try:
        _dump(host, text, str(record["database"]))
        with host.path(text).open("rb") as file, gzip.open(packed, "wb", 6) as smaller:
            shutil.copyfileobj(file, smaller)
    finally:
        host.remove(text)
    host.write_bytes(_file(f"{shared}/private"), packed.getvalue(), mode=0o600)
    return f"{len(packed.getvalue())} bytes"


def _dump(host: Host, text: str, name: str) -> None:
    path = host.path(text)
    host.run("mariadb-dump", "--single-transaction", "--quick", f"--result-file={path}", name, timeout=PATIENCE)
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 200))
        if COMPLETE not in file.read():
            raise StepError("mariadb-dump ended before the end of the database")


def main() -> int:
    """Copy once. A failure is this unit's, and the next hour's copy may succeed."""
    os.umask(0o077)
    host = Host(Settings.from_environment())
    try:
        print(f"hyperpod-accounting-backup: {save(host, node_record.read(host).shared)}")
    except (StepError, OSError, ValueError, KeyError) as error:
        print(f"hyperpod-accounting-backup: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
