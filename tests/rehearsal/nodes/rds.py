"""A database of Amazon RDS that a worker plays: a real MariaDB over TCP, with TLS and a password."""

import json
import subprocess
from pathlib import Path

from hyperpod_node.accounting import remote

from rehearsal.nodes.checks import output
from rehearsal.nodes.cluster import Cluster
from rehearsal.nodes.hosts import Host

AUTHORITY = "hyperpod_node/accounting/rds-ca.pem"
# Whatever RDS puts into passwords: all printable ASCII but /, ", @ and space (CreateDBInstance, MasterUserPassword).
PASSWORD = r"a#b\c=d'e;f,g!h$i%j\#k`l{m}"
_FOLDER = "/var/lib/rds"
_SETTINGS = f"""[mysqld]
datadir={_FOLDER}/data
socket={_FOLDER}/socket
pid-file={_FOLDER}/pid
port=3306
bind-address=0.0.0.0
user=mysql
ssl-ca={_FOLDER}/ca.pem
ssl-cert={_FOLDER}/server.pem
ssl-key={_FOLDER}/server.key
require_secure_transport=1
innodb_lock_wait_timeout=900
log-bin
server-id=1
"""
# Amazon RDS User Guide, "Master user account privileges", RDS for MariaDB. With automatic backups it has a binary log,
# which asks for more than these of whoever makes a function or a trigger.
_RIGHTS = (
    "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, RELOAD, PROCESS, REFERENCES, INDEX, ALTER, SHOW DATABASES, "
    "CREATE TEMPORARY TABLES, LOCK TABLES, EXECUTE, REPLICATION CLIENT, CREATE VIEW, SHOW VIEW, CREATE ROUTINE, "
    "ALTER ROUTINE, CREATE USER, EVENT, TRIGGER, REPLICATION SLAVE"
)


class Rds:
    """The stack's database on a host, by the name that the stack's parameter has."""

    def __init__(self, cluster: Cluster, host: Host, folder: Path) -> None:
        self.cluster, self.host, self._folder = cluster, host, folder
        account = cluster.stack.account
        name = remote.parameter(cluster.stack.cluster_name)
        found = json.loads(account.client("ssm").get_parameter(Name=name)["Parameter"]["Value"])
        self.place = remote.Place(**found)
        self._secret = account.client("secretsmanager")
        self._certify()

    @property
    def authority(self) -> bytes:
        """The certificate of who has signed the database's."""
        return (self._folder / "ca.pem").read_bytes()

    def start(self) -> None:
        """Make the database and run it."""
        for name in ("ca.pem", "server.pem", "server.key"):
            self.host.write(f"{_FOLDER}/{name}", (self._folder / name).read_bytes(), mode=0o600, owner="mysql")
        self.host.write(f"{_FOLDER}/my.cnf", _SETTINGS)
        output(
            self.host,
            f"chown mysql {_FOLDER}; mariadb-install-db --defaults-file={_FOLDER}/my.cnf --skip-test-db >/dev/null",
        )
        run = f"systemd-run --quiet --unit=rds mariadbd --defaults-file={_FOLDER}/my.cnf"
        output(self.host, f"{run}; until test -S {_FOLDER}/socket; do sleep 0.1; done")
        self.execute(f"CREATE USER 'slurm'@'%'; GRANT {_RIGHTS} ON *.* TO 'slurm'@'%' WITH GRANT OPTION;")

    def restart(self) -> None:
        """As after a maintenance of its own."""
        output(self.host, "systemctl restart rds")

    def execute(self, sql: str) -> str:
        """What it answers its own administrator."""
        answer = self.host.run(["mariadb", f"--socket={_FOLDER}/socket", "-BN"], text_in=sql)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def password(self, new: str, *, told: bool = True) -> None:
        """Change it, and with ``told`` in the secret too, as RDS does."""
        quoted = new.replace("\\", "\\\\").replace("'", "\\'")
        self.execute(f"ALTER USER 'slurm'@'%' IDENTIFIED BY '{quoted}';")
        if told:
            text = json.dumps({"username": "slurm", "password": new})
            self._secret.put_secret_value(SecretId=self.place.secret, SecretString=text)

    def found_by(self, host: Host) -> None:
        """What the VPC's resolver does."""
        host.path("/etc/hosts").open("a").write(f"{self.host.address} {self.place.host}\n")

    def _certify(self) -> None:
        def openssl(*words: str) -> None:
            subprocess.run(["openssl", *words], cwd=self._folder, check=True, capture_output=True)

        openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=RDS"
        )
        subject = ("-subj", "/CN=database", "-addext", f"subjectAltName=DNS:{self.place.host}")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr", *subject)
        copied = ("-copy_extensions", "copy", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
        openssl("x509", "-req", "-in", "server.csr", "-out", "server.pem", *copied)
