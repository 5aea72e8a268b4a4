"""Slurm's accounting in a database of Amazon RDS: where it is, its password, and whether it lets slurmdbd in.

The stack's parameter says where the database and its password are. RDS changes the password every seven days, in less
than a minute (AWS Secrets Manager User Guide, "Managed rotation for AWS Secrets Manager secrets"). Connections that
are open stay; so every minute ``hyperpod-accounting-password`` logs in as slurmdbd does, and only where that is refused
it starts slurmdbd again, which reads the secret first.

The password is in slurmdbd.conf, which only slurmdbd's user reads, and for a moment in a file of root's.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional, Sequence, Tuple, Union

from .. import aws_cli, fsx, slurm_configure, units
from ..errors import NotYet, StepError
from ..host import Host
from ..model import Node
from ..settings import Settings

# The tables' database: slurmdbd's default (slurmdbd.conf(5), StorageLoc).
NAME = "slurm_acct_db"
FOLDER = "/var/lib/hyperpod/accounting"
PLACE = f"{FOLDER}/place.json"
COMMAND = "hyperpod-accounting-password"
# Of a dump the client itself would take commands, as root: \! and system run programs, source reads files. With
# --binary-mode, and what it reads on its standard input, it takes none (MariaDB, "mariadb Command-Line Client").
CLIENT_WORDS = ("--batch", "--skip-column-names", "--binary-mode")
# MariaDB, "Error Codes": ER_ACCESS_DENIED_ERROR.
REFUSED = "ERROR 1045"
CHECK = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Whether the database of Slurm's accounting still takes the password

[Service]
Type=oneshot
ExecStart={bin}/{command} check
"""
TIMER = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Looks every minute whether the password of Slurm's accounting has changed

[Timer]
OnActiveSec=60
OnUnitActiveSec=60

[Install]
WantedBy=timers.target
"""
# Read by the client alone: nothing of root's own settings.
CLIENT = """[client]
host={host}
port={port}
user={user}
password="{password}"
ssl-ca={authority}
ssl-verify-server-cert
connect-timeout=10
"""


@dataclass(frozen=True)
class Place:
    """Where the database is, and the ARN of the secret with its user and password."""

    host: str
    port: int
    secret: str


@dataclass(frozen=True)
class Login:
    """Who logs in."""

    user: str
    password: str


def parameter(cluster: str) -> str:
    """The name of the stack's parameter that has the place."""
    return f"/hyperpod/{cluster}/accounting-database"


def authority(host: Host) -> str:
    """The file with the certificates that the database's is checked against."""
    return f"{host.settings.install_folder}/lib/hyperpod_node/accounting/rds-ca.pem"


def settle(node: Node) -> str:
    """Wait for the database, and until it takes the password. Raises StepError where it does not."""
    host, where = node.host, _await_place(node)
    began = host.now()

    def in_() -> bool:
        try:
            who = secret(host, node.parameters.region, where)
        except aws_cli.Refused as refused:
            if "AccessDenied" in refused.code and host.now() - began > fsx.ACCESS_GRACE:
                raise StepError(f"may not read the password: {refused}") from None
            raise NotYet(str(refused)) from None
        if why := refusal(host, where, who):
            raise NotYet(why)
        return True

    host.poll(
        f"the database at {where.host}:{where.port} did not let us in with the password of {where.secret}",
        in_,
        node.timeout("database-login"),
        most=5,
    )
    host.folder(FOLDER, mode=0o700)
    host.write(PLACE, json.dumps(asdict(where), sort_keys=True) + "\n", mode=0o600)
    return f"{where.host} lets us in"


def _await_place(node: Node) -> Place:
    """The stack makes the database while nodes boot, as it does the file system."""
    host, name = node.host, parameter(node.parameters.cluster_name)
    began = host.now()

    def look() -> Place:
        try:
            found = aws_cli.call(node, "ssm", "get-parameter", "--name", name)
        except aws_cli.Refused as refused:
            if "AccessDenied" in refused.code and host.now() - began > fsx.ACCESS_GRACE:
                raise StepError(f"may not look for the database: {refused}") from None
            raise NotYet(str(refused)) from None
        return Place(**json.loads(found["Parameter"]["Value"]))

    what = f"the database of slurm.accounting was not ready: no parameter {name}"
    return host.poll(what, look, node.timeout("database"), first=fsx.FIRST_WAIT, most=fsx.MOST_WAIT)


def secret(host: Host, region: str, where: Place) -> Login:
    """The user and password that RDS keeps there. Raises aws_cli.Refused."""
    answer = aws_cli.ask(
        host, region, host.settings.timeouts["aws"], "secretsmanager", "get-secret-value", "--secret-id", where.secret
    )
    found = json.loads(answer["SecretString"])
    return Login(found["username"], found["password"])


def login(node: Node) -> Login:
    """``secret`` for a step, at the place that the controller has found."""
    try:
        return secret(node.host, node.parameters.region, place(node.host))
    except aws_cli.Refused as refused:
        raise StepError(f"may not read the password: {refused}") from None


def refusal(host: Host, where: Place, who: Login) -> str:
    """Why the database does not let them in; empty where it does."""
    try:
        execute(host, where, who, "SELECT 1;")
    except StepError as error:
        return str(error)
    return ""


def execute(host: Host, where: Place, who: Login, sql: "Union[str, Path]", name: str = "", timeout: float = 30) -> str:
    """What the database answers. Raises StepError with its words."""
    settings = f"/run/hyperpod-database-{os.getpid()}.cnf"
    password = who.password.replace("\\", "\\\\")
    text = CLIENT.format(host=where.host, port=where.port, user=who.user, password=password, authority=authority(host))
    host.write(settings, text, mode=0o600)
    command = (f"--defaults-file={host.path(settings)}", *CLIENT_WORDS, *([name] if name else []))
    try:
        done = host.run("mariadb", *command, stdin=sql, timeout=timeout, check=False)
    finally:
        host.remove(settings)
        # Nothing has changed by a file that came and went.
        while settings in host.changes:
            host.changes.remove(settings)
    if done.code != 0:
        raise StepError(done.reason)
    return done.out


def storage(host: Host, where: Place, who: Login) -> str:
    """The lines of slurmdbd.conf about the database (slurmdbd.conf(5)).

    In a value, # begins a comment and a backslash takes the meaning of what follows it (Slurm's common/parse_config.c).
    """
    password = re.sub(r"([\\#])", r"\\\1", who.password)
    return f"""StorageHost={where.host}
StoragePort={where.port}
StorageUser={who.user}
StoragePass={password}
StorageParameters=SSL_CA={authority(host)}"""


def place(host: Host) -> Place:
    """The place that this controller has found."""
    return Place(**json.loads(host.read(PLACE) or "{}"))


def known(host: Host) -> Tuple[Place, Optional[Login]]:
    """The place, and what slurmdbd.conf has, None where it has no password."""
    text = host.read(f"{host.settings.slurm_etc}/slurmdbd.conf") or ""
    found = dict(re.findall(r"^Storage(User|Pass)=(\S+)$", text, re.M))
    if "Pass" not in found:
        return place(host), None
    return place(host), Login(found["User"], re.sub(r"\\(.)", r"\1", found["Pass"]))


def watch(node: Node) -> None:
    """Look every minute whether the password is still the one."""
    host, folder = node.host, node.host.settings.install_folder + "/bin"
    host.write(f"{units.UNITS}/{COMMAND}.service", CHECK.format(bin=folder, command=COMMAND))
    host.write(f"{units.UNITS}/{COMMAND}.timer", TIMER)
    units.start(node, f"{COMMAND}.timer")


def check(host: Host) -> str:
    """Start slurmdbd again where its password is refused. What was seen, in words."""
    where, who = known(host)
    why = refusal(host, where, who) if who else REFUSED
    if REFUSED not in why:
        return why or "taken"
    host.run("systemctl", "restart", "slurmdbd", timeout=120)
    return "refused: slurmdbd started again"


def renew(host: Host) -> str:
    """Before slurmdbd starts: put the secret's password in its file, where the one that it has is refused."""
    where, who = known(host)
    if who and REFUSED not in refusal(host, where, who):
        return "kept"
    fresh = secret(host, str(slurm_configure.facts(host)["region"]), where)
    name = f"{host.settings.slurm_etc}/slurmdbd.conf"
    text = host.read(name) or ""
    before = storage(host, where, who) if who else ""
    if not before or before not in text:
        raise StepError(f"{name} is not the lifecycle scripts' any more")
    text = text.replace(before, storage(host, where, fresh))
    host.write(name, text, mode=0o600, owner=host.owner(name))
    return "renewed"


def main(arguments: Sequence[str]) -> int:
    """``hyperpod-accounting-password renew`` or ``check``."""
    os.umask(0o077)
    host = Host(Settings.from_environment())
    try:
        print(f"{COMMAND}: {(check if arguments == ['check'] else renew)(host)}")
    except (StepError, aws_cli.Refused, OSError, ValueError, KeyError, TypeError) as error:
        print(f"{COMMAND}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
