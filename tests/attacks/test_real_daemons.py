"""Attacks of a person without sudo that only real daemons and file systems decide, on booted nodes: locks that Slurm's
prologs would wait for, what the next controller loads, and caches of another's jobs."""

import json
import time
from collections.abc import Iterator

import pytest
from hyperpod_node.accounting import backup

from rehearsal.nodes import requirements
from rehearsal.nodes.checks import output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from tests.rehearsal.nodes.conftest import deployed

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(bool(requirements.missing()), reason="; ".join(requirements.missing())),
]
ATTACKER, VICTIM = "mallory", "ada"
PRIVATE = "/fsx/.hyperpod/private"
COPY = backup._file(PRIVATE)
# Every file and folder of the node's that a person can open, below what the project makes.
HELD = """find /etc/hyperpod /opt/hyperpod /run/hyperpod* /var/lib/hyperpod /fsx/.hyperpod -readable \
\\( -type f -o -type d \\) 2> /dev/null > /tmp/held; /usr/bin/python3 -c '
import fcntl, os, time
kept = []
for name in open("/tmp/held").read().split("\\n"):
    try:
        kept.append(os.open(name, os.O_RDONLY))
        fcntl.flock(kept[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pass
print(len(kept), flush=True)
time.sleep(120)'"""
# Seconds. A job here takes half of one, and a prolog gives up its wait after 30.
SOON = 15.0
# What somebody does to the copy of the accounting, with root's folder in the way.
PLANTS = {
    "another copy": f"cp /tmp/planted.gz {COPY}",
    "another folder": f"mv {PRIVATE} {PRIVATE}.old",
    "another folder above it": "mv /fsx/.hyperpod /fsx/.hyperpod.old",
    "a link beside it": f"ln -s /tmp/planted.gz {PRIVATE}/planted",
    "a file beside it": "touch /fsx/.hyperpod/planted",
    "what is in it": f"cat {COPY}",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    people = [{"name": VICTIM, "uid": 2000, "account": "lab"}, {"name": ATTACKER, "uid": 2001, "account": "lab"}]
    slurm = {"accounting": {"database": "local"}, "accounts": [{"name": "lab"}]}
    options = (f"slurm={json.dumps(slurm)}", f"users={json.dumps(people)}")
    with deployed("dev", *options) as stack, Cluster(stack, Options(workers=1)) as found:
        found.start_hosts()
        found.boot()
        scripts_succeeded(found)
        yield found


def test_locks_that_a_person_holds_keep_nobody_elses_job_waiting(cluster: Cluster) -> None:
    (worker,) = cluster.workers
    job = "cd /tmp; srun -N1 hostname"
    output(cluster.controller, job, user=VICTIM)
    worker.write("/tmp/hold.sh", HELD, mode=0o755)
    output(
        worker, f"systemd-run --quiet --unit=hold --uid={ATTACKER} -p StandardOutput=file:/tmp/many bash /tmp/hold.sh"
    )
    output(worker, "until test -s /tmp/many; do sleep 0.1; done")
    try:
        assert int(worker.read("/tmp/many")) > 50
        assert worker.run("flock -n /etc/hyperpod true").returncode == 1, "nothing is held"
        began = time.monotonic()
        output(cluster.controller, job, user=VICTIM)
        assert time.monotonic() - began < SOON
    finally:
        output(worker, "systemctl stop hold")


def test_nobody_exchanges_what_the_next_controller_loads(cluster: Cluster) -> None:
    head = cluster.controller
    output(head, "/opt/hyperpod/bin/hyperpod-accounting-backup; echo 'SELECT 1;' | gzip > /tmp/planted.gz")
    before = output(head, f"sha256sum {COPY}")
    done = [what for what, command in PLANTS.items() if head.run(command, user=ATTACKER).returncode == 0]
    assert not done
    assert output(head, f"sha256sum {COPY}; stat -c '%a %U' {PRIVATE}") == f"{before}700 root\n"


def test_a_cache_that_somebody_plants_on_the_shared_file_system_is_not_used(cluster: Cluster) -> None:
    head = cluster.controller
    place = f"/fsx/checkpoints/huggingface-{VICTIM}"
    output(head, f"mkdir -m 0777 {place} && touch {place}/model.py", user=ATTACKER)
    job = "cd /tmp; srun -N1 bash /opt/hyperpod/lib/training/own_folder.sh {} HF_HOME"
    refused = head.run(job.format(place), user=VICTIM)
    assert refused.returncode == 1
    assert f"{place} is a link or somebody else's" in refused.stderr
    output(head, job.format(f"{place}-2"), user=VICTIM)
    # The folder is everybody's, but what is in it is its owner's (a sticky bit).
    taken = head.run(f"mv {place}-2 {place}-3; rm -r {place}-2; touch {place}-2/model.py", user=ATTACKER)
    assert taken.returncode == 1
    assert output(head, f"stat -c %U {place}-2; ls {place}-2") == f"{VICTIM}\n"
