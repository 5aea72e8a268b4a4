"""What a person without sudo tries to become Slurm's administrator through the database of its accounting, on booted
nodes, with the database on the controller and on RDS.

Each attack is the command that a person would type. It has to fail for them, and to succeed once what keeps them out is
gone: then it is that which keeps them out, and not a command that never works.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from rehearsal.nodes import requirements
from rehearsal.nodes.checks import output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.hosts import Host
from tests.rehearsal.nodes.conftest import deployed
from tests.rehearsal.nodes.rds import AUTHORITY, PASSWORD, Rds
from tests.rehearsal.nodes.test_accounting import CONF, job, settings_of, submit, until

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(bool(requirements.missing()), reason="; ".join(requirements.missing())),
]
ATTACKER, VICTIM = "mallory", "ada"
PEOPLE = [{"name": VICTIM, "uid": 2000, "account": "lab"}, {"name": ATTACKER, "uid": 2001, "account": "lab"}]
# slurmdb_admin_level_t (slurm/slurmdb.h).
SQL = f"-e 'UPDATE user_table SET admin_level = 3 WHERE name = \"{ATTACKER}\"'"
TLS = f"--ssl-ca=/opt/hyperpod/lib/{AUTHORITY}"
LEVEL = "an admin level by sacctmgr"
EVERYWHERE = {
    LEVEL: f"sacctmgr --immediate modify user {ATTACKER} set AdminLevel=Administrator",
    "another's job": "scancel {job}",
}
ON_THE_CONTROLLER = {
    "the database as oneself": f"mariadb slurm_acct_db {SQL}",
    "the database by the name of its user": f"mariadb --user=slurm slurm_acct_db {SQL}",
}
LOGIN = "mariadb {tls} --host={host} --user={user} --password=$({read}) slurm_acct_db {sql}"
READ = f"sed -n s/^StoragePass=//p {CONF} | grep ."
NO_PASSWORD, MEMORY = "the database without a password", "the memory of slurmdbd"
ASK = "aws secretsmanager get-secret-value --secret-id '{secret}' --query SecretString --output text"
ON_RDS = {
    "the administrator's password from AWS": ASK,
    "slurmdbd's password from its settings": READ,
    MEMORY: "grep -q heap /proc/$(pgrep -x slurmdbd)/maps",
    "the database as slurmdbd": LOGIN.replace("{user}", "slurmdbd").replace("{read}", READ),
    "the database as its administrator": LOGIN.replace("{user}", "slurm").replace(
        "{read}", f"{ASK} | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"password\"])'"
    ),
    NO_PASSWORD: LOGIN.replace("{user}", "slurm").replace("{read}", ""),
}


@dataclass
class Scene:
    """A booted cluster. ``names``: what attacks say of it; ``rds``: its database, unless that is the controller's."""

    cluster: Cluster
    attacks: Mapping[str, str]
    names: dict[str, str] = field(default_factory=lambda: {"tls": TLS, "sql": SQL})
    rds: Rds | None = None

    @property
    def head(self) -> Host:
        return self.cluster.controller

    def attack(self, what: str, user: str = ATTACKER) -> bool:
        """Whether it succeeds."""
        command = self.attacks[what]
        for name, text in self.names.items():
            command = command.replace(f"{{{name}}}", text)
        return self.head.run(f"set -o pipefail; {command}", user=user).returncode == 0

    def succeed(self) -> set[str]:
        """Which attacks do."""
        self.names["job"] = submit(self.head, VICTIM, 600)
        until("a job", job(self.head, self.names["job"]), "RUNNING")
        found = {what for what in self.attacks if self.attack(what)}
        output(self.head, f"scancel {self.names['job']}")
        return found


@pytest.fixture(scope="module", params=["local", "rds"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    kind: str = request.param
    slurm = {"accounting": {"database": kind}, "accounts": [{"name": "lab"}]}
    with deployed("dev", f"slurm={json.dumps(slurm)}", f"users={json.dumps(PEOPLE)}") as stack:
        files = stack.lifecycle_files()
        with Cluster(stack, Options(workers=1, files=files)) as cluster:
            cluster.start_hosts()
            found = Scene(cluster, {**(ON_RDS if kind == "rds" else ON_THE_CONTROLLER), **EVERYWHERE})
            if kind == "rds":
                found.rds = rds = Rds(cluster, cluster.workers[0], tmp_path_factory.mktemp("rds"))
                files[AUTHORITY] = rds.authority
                rds.start()
                rds.password(PASSWORD)
                rds.found_by(cluster.controller)
                found.names |= {"host": rds.place.host, "secret": rds.place.secret}
            cluster.boot()
            scripts_succeeded(cluster)
            yield found


def test_no_attack_on_the_accounting_succeeds(scene: Scene) -> None:
    assert scene.succeed() == set()
    head = scene.head
    level = f"sacctmgr -nP show user {ATTACKER} format=AdminLevel"
    assert output(head, level) == "None\n"
    refused = head.run(EVERYWHERE[LEVEL], user=ATTACKER)
    assert "Access/permission denied" in refused.stderr


def test_no_password_is_anywhere_that_a_person_can_read(scene: Scene) -> None:
    head = scene.head
    if scene.rds is None:
        assert "StoragePass" not in head.read(CONF)
        return
    places = "/etc /opt /run /var /tmp /home /fsx /proc/[0-9]*/cmdline /proc/[0-9]*/environ"
    # Without what some file would have a backslash before.
    for part, where in ((settings_of(head)["StoragePass"], [CONF]), (PASSWORD[6:20], [])):
        head.write("/var/part", part)
        search = f"grep -rslFf /var/part {places} | grep -vxF /var/part"
        assert head.run(search, user=ATTACKER).stdout == ""
        assert head.run(search).stdout.split() == where
        assert output(head, "journalctl --no-pager | grep -cFf /var/part || true") == "0\n"


def test_each_attack_succeeds_once_what_keeps_people_out_is_gone(scene: Scene) -> None:
    head = scene.head
    if scene.rds is None:
        sql = f"""CREATE USER '{ATTACKER}'@'localhost' IDENTIFIED VIA unix_socket;
            GRANT ALL ON slurm_acct_db.* TO '{ATTACKER}'@'localhost';
            ALTER USER 'slurm'@'localhost' IDENTIFIED BY '';"""
        assert head.run("mariadb", text_in=sql).returncode == 0
        opened = set(ON_THE_CONTROLLER)
    else:
        scene.rds.password("", told=False)
        assert scene.attack(NO_PASSWORD)
        scene.rds.password(PASSWORD)
        assert scene.attack(MEMORY, "root")
        output(head, f"for f in -4 -6; do ip $f rule del priority 1; done; chmod 0644 {CONF}")
        opened = set(ON_RDS) - {NO_PASSWORD, MEMORY}
    assert scene.succeed() == opened
    # Slurm reads levels when it starts, and slurmdbd no settings that others read.
    output(head, f"chmod 0600 {CONF}; systemctl restart slurmdbd")
    until("slurmdbd", lambda: head.run(f"sacctmgr -nP show user {ATTACKER} format=AdminLevel").stdout, "Administrator")
    output(head, "systemctl restart slurmctld")
    until("slurmctld", lambda: output(head, "scontrol ping | grep -c 'is UP' || true"), "1")
    assert scene.succeed() >= set(EVERYWHERE)
