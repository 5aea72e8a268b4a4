"""Slurm's accounting in a database of Amazon RDS: its address, and slurmdbd's user there.

The stack's parameter has the address of the database, and the secret with its administrator's password. slurmdbd does
not use that password, which RDS rotates every seven days (AWS Secrets Manager User Guide, "Managed rotation for AWS
Secrets Manager secrets"). Root creates a user for slurmdbd, with a separate password and rights on slurmdbd's tables
only, and creates it again only if the database refuses it.

That user's password is in slurmdbd.conf, which only slurmdbd's user reads. While root logs in, its password is in a
file of root's in memory (/run); the administrator's password is nowhere else.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional, Union

from ..facts.model import Node, own_path
from ..host import aws_cli
from ..host.errors import NotYet, StepError
from ..host.host import Host
from ..storage import fsx

# The tables' database: slurmdbd's default (slurmdbd.conf(5), StorageLoc).
NAME = "slurm_acct_db"
FOLDER = "/var/lib/hyperpod/accounting"
PLACE = f"{FOLDER}/place.json"
USER = "slurmdbd"
# The client would run commands in a dump, as root: \! and system run programs, source reads files. With --binary-mode,
# and a dump on its standard input, it runs none (MariaDB, "mariadb Command-Line Client").
CLIENT_WORDS = ("--batch", "--skip-column-names", "--binary-mode")
# SchedMD's page asks for all rights (slurm.schedmd.com/accounting.html). These are what slurmdbd uses (Slurm 24.11 to
# 26.05, src/plugins/accounting_storage/mysql): it makes and changes tables and stored procedures. With a binary log the
# server wants more for functions, but not for procedures (MariaDB, "log_bin_trust_function_creators"). A copy locks its
# tables.
RIGHTS = (
    "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, LOCK TABLES, CREATE ROUTINE, ALTER ROUTINE, EXECUTE"
)
# As in Debian's MariaDB, whose copy is loaded into it. MariaDB's own default is latin1, which loses letters of names
# (MariaDB, "Server System Variables", character_set_server).
CREATE = f"CREATE DATABASE IF NOT EXISTS `{NAME}` CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci;\n"
# The user's previous rights and password end. The security group decides from where it may log in.
ADMIT = (
    "CREATE OR REPLACE USER '{user}'@'{host}' IDENTIFIED {how};\nGRANT {rights} ON `{tables}`.* TO '{user}'@'{host}';\n"
)
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
    """The address of the database, and the ARN of the secret with its administrator's name and password."""

    host: str
    port: int
    secret: str


@dataclass(frozen=True)
class Login:
    """A user and password of the database."""

    user: str
    password: str


def parameter(cluster: str) -> str:
    """Return the name of the stack's parameter that has the address."""
    return f"/{own_path(cluster)}/accounting-database"


def authority(host: Host) -> str:
    """Return the file with the certificates that verify the database's."""
    return f"{host.settings.install_folder}/lib/hyperpod_node/accounting/rds-ca.pem"


def admit(user: str, host: str, how: str, name: str = NAME) -> str:
    """Return SQL that creates a user again, with rights on one database only: in GRANT an underscore stands for any
    letter (MariaDB, "GRANT", Database Privileges).
    """
    return ADMIT.format(user=user, host=host, how=how, rights=RIGHTS, tables=name.replace("_", r"\_"))


def settle(node: Node) -> str:
    """Wait until the database admits slurmdbd or its administrator. Raises StepError if it does not."""
    host, where = node.host, _await_place(node)
    began = host.now()

    def in_() -> bool:
        if own(host, where):
            return True
        try:
            who = secret(node, where)
        except aws_cli.Refused as refused:
            if "AccessDenied" in refused.code and host.now() - began > fsx.ACCESS_GRACE:
                raise StepError(f"not permitted to read the password: {refused}") from None
            raise NotYet(str(refused)) from None
        if why := refusal(host, where, who):
            raise NotYet(why)
        return True

    host.poll(
        f"the database at {where.host}:{where.port} refused the password of {where.secret}",
        in_,
        node.timeout("database-login"),
        most=5,
    )
    host.folder(FOLDER, mode=0o700)
    host.write(PLACE, json.dumps(asdict(where), sort_keys=True) + "\n", mode=0o600)
    return f"{where.host} lets us in"


def _await_place(node: Node) -> Place:
    """Wait for the address: the stack creates the database while nodes boot, as it does the file system."""
    host, name = node.host, parameter(node.parameters.cluster_name)
    began = host.now()

    def look() -> Place:
        try:
            found = node.aws("ssm", "get-parameter", "--name", name)
        except aws_cli.Refused as refused:
            if "AccessDenied" in refused.code and host.now() - began > fsx.ACCESS_GRACE:
                raise StepError(f"not permitted to look for the database: {refused}") from None
            raise NotYet(str(refused)) from None
        return Place(**json.loads(found["Parameter"]["Value"]))

    what = f"the database of slurm.accounting was not ready: no parameter {name}"
    return host.poll(what, look, node.timeout("database"), first=fsx.FIRST_WAIT, most=fsx.MOST_WAIT)


def secret(node: Node, where: Place) -> Login:
    """Return the administrator, whose password RDS keeps in the secret. Raises aws_cli.Refused."""
    answer = node.aws("secretsmanager", "get-secret-value", "--secret-id", where.secret)
    found = json.loads(answer["SecretString"])
    return Login(found["username"], found["password"])


def own(host: Host, where: Place) -> Optional[Login]:
    """Return slurmdbd's user from its slurmdbd.conf. None if the user is not ours, or the database refuses it."""
    text = host.read(f"{host.settings.slurm_etc}/slurmdbd.conf") or ""
    found = re.search(rf"^StorageUser={USER}\nStoragePass=(\S+)$", text, re.M)
    login = Login(USER, found[1]) if found else None
    return None if login is None or refusal(host, where, login) else login


def login(node: Node, where: Place) -> Login:
    """Return slurmdbd's user: the previous one, or one created now, with another password."""
    if known := own(node.host, where):
        return known
    try:
        administrator = secret(node, where)
    except aws_cli.Refused as refused:
        raise StepError(f"not permitted to read the password: {refused}") from None
    fresh = Login(USER, secrets.token_urlsafe(32))
    sql = CREATE + admit(USER, "%", f"BY '{fresh.password}' REQUIRE SSL")
    execute(node.host, where, administrator, sql)
    return fresh


def refusal(host: Host, where: Place, who: Login) -> str:
    """Return why the database refuses the login; empty if it does not."""
    try:
        execute(host, where, who, "SELECT 1;")
    except StepError as error:
        return str(error)
    return ""


def execute(host: Host, where: Place, who: Login, sql: "Union[str, Path]", name: str = "", timeout: float = 30) -> str:
    """Run SQL and return the answer. Raises StepError with the database's error."""
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
    """Return the lines of slurmdbd.conf about the database (slurmdbd.conf(5)).

    Our passwords have neither # nor a backslash, which are special there (Slurm's common/parse_config.c).
    """
    return f"""StorageHost={where.host}
StoragePort={where.port}
StorageUser={who.user}
StoragePass={who.password}
StorageParameters=SSL_CA={authority(host)}"""


def place(host: Host) -> Place:
    """Return the address that this controller has found."""
    return Place(**json.loads(host.read(PLACE) or "{}"))
