"""Accounting on a real Slurm with a real MariaDB: shares, limits, preemption, and what survives."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hyperpod_node.facts import parameters

from operations.spending import usage
from rehearsal.checks import CheckFailed
from rehearsal.nodes.checks import output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.hosts import Host

from .conftest import deployed
from .rds import AUTHORITY, PASSWORD, Rds
from .test_people import key, ssh

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]
# Two workers with a GPU each.
SLURM = {
    # The stack has a database on RDS, and its first controllers one of their own (``files``): the way of who moves.
    "accounting": {"database": "rds"},
    "accounts": [
        {"name": "guests", "users": ["bob", "ada"], "maxGpus": 1},
        {"name": "lab", "qos": ["normal", "urgent", "small"]},
    ],
    "qos": [{"name": "urgent", "priority": 100, "preempts": ["normal"]}, {"name": "small", "maxGpusPerUser": 1}],
}
# Ada is in both accounts, and charged to the second one.
PEOPLE = [{"name": "ada", "uid": 2000, "account": "lab"}, {"name": "bob", "uid": 2001}]
CONF = "/opt/slurm/etc/slurmdbd.conf"
# Each of Ada's jobs had one GPU of every node; one had to begin twice.
_SECONDS = "sacct -XDn -P -u ada -o nnodes,elapsedraw"


def until(what: str, seen: Callable[[], str], wanted: str, seconds: float = 20.0) -> None:
    """Wait until a state is the wanted one."""
    deadline = time.monotonic() + seconds
    while (state := seen().strip()) != wanted:
        if time.monotonic() > deadline:
            raise CheckFailed(f"{what} is {state!r}, not {wanted!r}")
        time.sleep(0.1)


def submit(host: Host, user: str, seconds: int, *options: str) -> str:
    """A job of some nodes with their GPUs. Its number."""
    words = f"sbatch --parsable --gpus-per-node=1 -o /dev/null {' '.join(options)} --wrap 'srun sleep {seconds}'"
    return output(host, words, user=user).strip()


def job(host: Host, number: str, field: str = "%T") -> Callable[[], str]:
    """What squeue says of a job."""
    return lambda: output(host, f"squeue -h -j {number} -o {field}")


def history(host: Host) -> list[str]:
    """What the database has of all jobs."""
    return output(host, "sacct -aXDn -P -o jobid,user,account,qos,state,alloctres,start,end").splitlines()


def associations(host: Host) -> list[str]:
    return output(host, "sacctmgr -nP show assoc format=account,user,fairshare,grptres,qos,defaultqos").splitlines()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Ada's key is, as the first person's."""
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def cluster(keys: Path) -> Iterator[Cluster]:
    ada, bob = PEOPLE
    people = [ada | {"sshKeys": [key(keys, 1)]}, bob]
    settings = {"slurm": SLURM, "users": people, "security": {"sshOnlyWithJob": True}}
    with (
        deployed("dev", *(f"{name}={json.dumps(value)}" for name, value in settings.items())) as stack,
        Cluster(stack, Options(workers=2, files=before_rds(stack.lifecycle_files()))) as found,
    ):
        found.start_hosts()
        for host in found.hosts:
            a_stranger(host)
        found.boot()
        scripts_succeeded(found)
        yield found


def before_rds(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of the same stack with its database on the controller."""
    told = json.loads(files[parameters.FILE_NAME])
    told["accounting"]["database"] = "local"
    return {**files, parameters.FILE_NAME: json.dumps(told).encode()}


def a_stranger(host: Host) -> None:
    """Eve is a user of every node, and nobody of the stack's."""
    output(host, "useradd -u 2002 eve")


@pytest.mark.timeout(240)
def test_shares_limits_and_preemption_hold_and_the_record_survives(
    cluster: Cluster, keys: Path, tmp_path: Path
) -> None:
    head = cluster.controller
    who_has_no_job_stays_outside(cluster, keys)
    nobody_else_reads_it(head)
    limits_refuse_with_their_reason(head)
    an_urgent_job_takes_the_nodes_of_one_that_returns(head)
    who_used_less_comes_first(head)
    what_was_used_adds_up(cluster, head)
    before, allowed = history(head), associations(head)
    assert before
    output(head, "systemctl restart mariadb")
    output(head, "systemctl restart slurmdbd")
    until("slurmdbd", lambda: str(history_of(head) == before), "True")
    fresh = cluster.fresh_host(head)
    a_stranger(fresh)
    cluster.take_place(head, fresh)
    killed_while_it_takes_over(cluster, fresh)
    assert cluster.script(fresh).wait(60) == 0, cluster.scripts[fresh.name].last_line
    assert history(fresh) == before
    assert associations(fresh) == allowed
    (said,) = (line for line in cluster.scripts[fresh.name].lines if line.startswith("step accounting "))
    assert "taken over from" in said
    again = submit(fresh, "ada", 0, "-N1")
    until("a job after it", lambda: output(fresh, f"sacct -Xn -o state -j {again}"), "COMPLETED")
    rds = Rds(cluster, cluster.workers[1], tmp_path)
    rds.start()
    moved = moved_to_rds(cluster, fresh, rds)
    passwords_are_nowhere_else(cluster, moved)
    slurmdbd_has_rights_on_its_tables_alone(moved, rds)
    a_new_password_and_a_restart_are_survived(moved, rds)
    who_logged_in_as_the_administrator_does_so_no_more(cluster, moved, rds)
    before = history(moved)
    last = replaced(cluster, moved, rds)
    assert cluster.script(last, files=files_of(cluster, rds)).wait(60) == 0, cluster.scripts[last.name].last_line
    assert history(last) == before
    assert associations(last) == allowed


def files_of(cluster: Cluster, rds: Rds) -> dict[str, bytes]:
    """The stack's files, with who has signed this database's certificate in place of RDS's authorities."""
    return {**cluster.stack.lifecycle_files(), AUTHORITY: rds.authority}


def replaced(cluster: Cluster, gone: Host, rds: Rds) -> Host:
    fresh = cluster.fresh_host(gone)
    a_stranger(fresh)
    rds.found_by(fresh)
    cluster.take_place(gone, fresh)
    return fresh


def moved_to_rds(cluster: Cluster, gone: Host, rds: Rds) -> Host:
    """The next controller brings the history there, once the password is the right one."""
    output(gone, "systemctl restart mariadb")
    until("slurmdbd", lambda: str(bool(history_of(gone))), "True")
    before, allowed = history(gone), associations(gone)
    fresh = replaced(cluster, gone, rds)
    rds.password("not in the secret", told=False)
    run = cluster.script(fresh, {"HYPERPOD_TIMEOUT_DATABASE_LOGIN": "2"}, files_of(cluster, rds))
    assert run.wait(60) == 1
    said = "\n".join(run.lines)
    assert f"step database failed: the database at {rds.place.host}:3306 refused the password of" in said
    assert "Access denied for user 'slurm'@" in said
    rds.password(PASSWORD)
    run = cluster.script(fresh, files=files_of(cluster, rds))
    assert run.wait(60) == 0, run.last_line
    assert any("taken over from" in line for line in run.lines if line.startswith("step accounting "))
    assert history(fresh) == before
    assert associations(fresh) == allowed
    return fresh


def settings_of(head: Host) -> dict[str, str]:
    """What slurmdbd.conf says."""
    lines = head.read(CONF).splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def passwords_are_nowhere_else(cluster: Cluster, head: Host) -> None:
    assert output(head, f"stat -c '%a %U' {CONF}") == "600 slurm\n"
    own = settings_of(head)["StoragePass"]
    places = "/etc /opt /run /var/lib/hyperpod /var/log /var/spool /tmp /fsx /proc/[0-9]*/cmdline /proc/[0-9]*/environ"
    # Without what slurmdbd.conf would have a backslash before.
    for part, where in ((PASSWORD[6:20], []), (own, [CONF])):
        head.write("/root/part", part, mode=0o600)
        assert output(head, f"grep -rslFf /root/part {places} || true").split() == where
        assert part not in "\n".join(cluster.scripts[head.name].lines)


def slurmdbd_has_rights_on_its_tables_alone(head: Host, rds: Rds) -> None:
    found = settings_of(head)
    login = f"[client]\nuser={found['StorageUser']}\npassword={found['StoragePass']}\nhost={found['StorageHost']}\n"
    head.write("/root/own.cnf", login, mode=0o600)
    asked, tls = "mariadb --defaults-file=/root/own.cnf -BN", "--ssl-ca=/opt/hyperpod/lib/" + AUTHORITY
    seen = output(head, f"{asked} {tls} -e 'SHOW DATABASES'").split()
    assert seen == ["information_schema", "slurm_acct_db"]
    # How people copy the history (docs/slurm-teams.md).
    copy = (
        f"mariadb-dump --defaults-file=/root/own.cnf {tls} --ssl-verify-server-cert --single-transaction slurm_acct_db"
    )
    assert "-- Dump completed" in output(head, f"{copy} | tail -n 1")
    rds.execute("CREATE DATABASE slurmXacctXdb; CREATE TABLE slurmXacctXdb.one (number INT);")
    for sql in ("SELECT * FROM slurmXacctXdb.one", "CREATE DATABASE other", "SELECT * FROM mysql.user"):
        with pytest.raises(CheckFailed, match="denied"):
            output(head, f"{asked} {tls} -e '{sql}'")
    rds.execute("DROP DATABASE slurmXacctXdb; SET GLOBAL require_secure_transport = 0;")
    with pytest.raises(CheckFailed, match="Access denied"):
        output(head, f"{asked} --skip-ssl -e 'SELECT 1'")
    rds.execute("SET GLOBAL require_secure_transport = 1;")


def a_new_password_and_a_restart_are_survived(head: Host, rds: Rds) -> None:
    before, conf = history(head), head.read(CONF)
    schema = "SELECT default_character_set_name FROM information_schema.schemata WHERE schema_name = 'slurm_acct_db';"
    assert rds.execute(schema) == "utf8mb4\n"
    assert rds.execute("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'slurm_acct_db';") != "0\n"
    rds.password(PASSWORD[::-1])
    assert history(head) == before
    rds.restart()
    until("slurmdbd after a restart of the database", lambda: str(history_of(head) == before), "True")
    output(head, "systemctl restart slurmdbd")
    until("slurmdbd after a restart of its own", lambda: str(history_of(head) == before), "True")
    assert head.read(CONF) == conf
    number = submit(head, "ada", 0, "-N1")
    until("a job after it", lambda: output(head, f"sacct -Xn -o state -j {number}"), "COMPLETED")


def who_logged_in_as_the_administrator_does_so_no_more(cluster: Cluster, head: Host, rds: Rds) -> None:
    """A controller of an earlier release: its slurmdbd has the administrator's password, and made its procedures."""
    rds.password(PASSWORD)
    rds.execute("DROP USER slurmdbd;")
    own = settings_of(head)["StoragePass"]
    was = head.read(CONF).replace("StorageUser=slurmdbd", "StorageUser=slurm")
    was = was.replace(own, PASSWORD.replace("\\", "\\\\").replace("#", "\\#"))
    head.write(CONF, was, mode=0o600, owner="slurm")
    output(head, "systemctl restart slurmdbd")
    until("slurmdbd as the administrator", lambda: str(bool(history_of(head))), "True")
    definer = "SELECT DISTINCT definer FROM information_schema.routines WHERE routine_schema = 'slurm_acct_db';"
    assert rds.execute(definer) == "slurm@%\n"
    before = history(head)
    run = cluster.script(head, files=files_of(cluster, rds))
    assert run.wait(60) == 0, run.last_line
    assert settings_of(head)["StorageUser"] == "slurmdbd"
    assert settings_of(head)["StoragePass"] not in (own, PASSWORD)
    until("slurmdbd as itself", lambda: str(history_of(head) == before), "True")
    assert rds.execute(definer) == "slurmdbd@%\n"
    # By a procedure (get_parent_limits).
    output(head, "sacctmgr --immediate modify account guests set fairshare=7")
    assert "7" in output(head, "sacctmgr -nP show assoc account=guests format=fairshare").split()


# In the place of MariaDB's client: of the first copy that it is to bring it brings half, and hangs.
_HALF = r"""#!/bin/bash
if [[ $# == 3 && ! -e /var/tmp/half ]]; then
  read -r _ file
  head -n $(($(wc -l < "$file") / 2)) "$file" | /usr/bin/mariadb "$@"
  touch /var/tmp/half
  exec sleep 60
fi
exec /usr/bin/mariadb "$@"
"""


def killed_while_it_takes_over(cluster: Cluster, host: Host) -> None:
    output(host, f"cat > /usr/local/sbin/mariadb << 'END'\n{_HALF}END\nchmod +x /usr/local/sbin/mariadb")
    run = cluster.script(host)
    until("half of the copy", lambda: host.run("test -e /var/tmp/half && echo there").stdout.strip(), "there")
    run.kill()
    assert not any(line.startswith("step accounting ") for line in run.lines)


def what_was_used_adds_up(cluster: Cluster, head: Host) -> None:
    lines = output(head, usage.SACCT.format(since="2026-01-01")).splitlines()
    found = usage.read(cluster.stack.config, [], lines, "")
    by_user = {use.user: use for use in found.uses}
    held = (map(int, line.split("|")) for line in output(head, _SECONDS).splitlines())
    assert by_user["ada"].gpu_hours == pytest.approx(sum(nodes * seconds for nodes, seconds in held) / 3600, abs=0.001)
    assert (by_user["ada"].usd or 0.0) > 0
    # Neither ran.
    assert "eve" not in by_user


def history_of(host: Host) -> list[str]:
    try:
        return history(host)
    except CheckFailed:
        return []


def who_has_no_job_stays_outside(cluster: Cluster, keys: Path) -> None:
    with_a_job, without = cluster.workers
    number = submit(cluster.controller, "ada", 60, f"-w {with_a_job.hostname}")
    until("Ada's job", job(cluster.controller, number, "'%T %a'"), "RUNNING lab")
    assert ssh(cluster, with_a_job, keys, 1, "id -un", user="ada") == "ada\n"
    assert not ssh(cluster, without, keys, 1, "id -un", user="ada")
    output(cluster.controller, f"scancel {number}")


def nobody_else_reads_it(head: Host) -> None:
    assert "3306" not in output(head, "cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == \"0A\" {print $2}'")
    assert output(head, f"stat -c '%a %U' {CONF}") == "600 slurm\n"
    assert "StoragePass" not in head.read(CONF)
    with pytest.raises(CheckFailed, match="Access denied"):
        output(head, "mariadb slurm_acct_db -e 'show tables'", user="ada")


def limits_refuse_with_their_reason(head: Host) -> None:
    with pytest.raises(CheckFailed, match="Invalid account"):
        submit(head, "eve", 0)
    with pytest.raises(CheckFailed, match="Invalid qos"):
        submit(head, "bob", 0, "--qos=urgent")
    of_an_account = submit(head, "bob", 60, "-N2")
    of_a_qos = submit(head, "ada", 60, "-N2 --qos=small")
    until("a job above its account's limit", job(head, of_an_account, "%r"), "AssocGrpGRES")
    until("a job above its QOS's limit", job(head, of_a_qos, "%r"), "QOSMaxGRESPerUser")
    output(head, f"scancel {of_an_account} {of_a_qos}")


def an_urgent_job_takes_the_nodes_of_one_that_returns(head: Host) -> None:
    first = submit(head, "ada", 600, "-N2")
    # Slurm holds a job that it requeues for two minutes, and hyperpod-requeue releases those that it has seen running.
    until("a job", lambda: str(first in json.loads(head.read("/run/hyperpod-requeue.json"))["running"]), "True")
    urgent = submit(head, "ada", 2, "-N2 --qos=urgent")
    until("an urgent job", job(head, urgent), "RUNNING")
    assert job(head, first)().strip() == "PENDING"
    until("the job that had to go", job(head, first), "RUNNING", 60)
    output(head, f"scancel {first}")


def who_used_less_comes_first(head: Host) -> None:
    """slurm.conf(5), PriorityWeightFairshare; priorities are computed when slurmctld starts, and every five minutes."""
    holder = submit(head, "ubuntu", 600, "-N2")
    until("a job that holds the nodes", job(head, holder), "RUNNING")
    used, unused = submit(head, "ada", 60, "-N1"), submit(head, "bob", 60, "-N1")
    output(head, "systemctl restart slurmctld")
    until("slurmctld", lambda: output(head, "scontrol ping | grep -c 'is UP' || true"), "1")
    priority = {number: int(output(head, f"squeue -h -j {number} -o %Q")) for number in (used, unused)}
    assert priority[unused] > priority[used]
    order = output(head, "squeue -h -t PD --sort=-p -o %i").split()
    assert order == [unused, used]
    output(head, f"scancel {holder} {used} {unused}")
    until("the queue", lambda: output(head, "squeue -h | wc -l"), "0")
