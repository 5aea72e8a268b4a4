"""What a person without sudo tries to get the node's role, on booted nodes of Slurm, before and after a reboot.

Each attack is the command that a person would type. It has to fail for them, and to succeed for root, so that what
keeps them out is the node's rule and not a service that is not there.
"""

import json
from collections.abc import Iterator

import pytest
from hyperpod_node.host import units
from hyperpod_node.network import metadata_guard

from rehearsal.nodes import requirements
from rehearsal.nodes.checks import output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.hosts import Host
from tests.rehearsal.nodes.conftest import deployed

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(bool(requirements.missing()), reason="; ".join(requirements.missing())),
]
ATTACKER, OWNER, AGENT = "mallory", "research1", "cwagent"
V4, V6 = "169.254.169.254", "[fd00:ec2::254]"
# The service refuses by 401 whoever has no token, so an answer of any kind is one.
ASK = """#!/usr/bin/python3
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen
lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
try:
    print(urlopen(Request(sys.argv[2], method=sys.argv[1], headers=lifetime), timeout=5).status)
except HTTPError as answer:
    print(answer.code)
"""
TOKEN, ROLE = "latest/api/token", "latest/meta-data/iam/security-credentials/"
ATTACKS = {
    "a session token (IMDSv2)": f"ask PUT http://{V4}/{TOKEN}",
    "the role without one (IMDSv1)": f"ask GET http://{V4}/{ROLE}",
    "a session token over IPv6": f"ask PUT http://{V6}/{TOKEN}",
    "the role over IPv6": f"ask GET http://{V6}/{ROLE}",
    "the address of IPv4 by a socket of IPv6": f"ask PUT http://[::ffff:{V4}]/{TOKEN}",
    "a session token as root of a namespace": f"unshare --user --map-root-user ask PUT http://{V4}/{TOKEN}",
    "who the node is": "aws sts get-caller-identity",
    "the lifecycle bucket": "aws s3 ls s3://{bucket}/",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with deployed("dev") as stack, Cluster(stack, Options(workers=1)) as found:
        found.start_hosts()
        for host in found.hosts:
            host.write("/usr/local/bin/ask", ASK, mode=0o755)
            output(host, f"useradd -m -u 2001 {ATTACKER}; useradd -m -u 2002 {OWNER}; useradd -r {AGENT}")
        found.boot()
        scripts_succeeded(found)
        yield found


def tried(host: Host, bucket: str, user: str) -> dict[str, bool]:
    """Which attacks succeed."""
    return {
        what: host.run(command.replace("{bucket}", bucket), user=user).returncode == 0
        for what, command in ATTACKS.items()
    }


def test_only_root_and_the_agents_reach_metadata_before_and_after_a_reboot(cluster: Cluster) -> None:
    bucket = cluster.stack.bucket
    for again in (False, True):
        for host in (cluster.controller, *cluster.workers):
            if again:
                cluster.reboot(host)
            through = [what for what, done in tried(host, bucket, ATTACKER).items() if done]
            assert not through, f"{ATTACKER} on {host.name} gets {', '.join(through)}"
            for user in ("root", AGENT):
                barred = [what for what, done in tried(host, bucket, user).items() if not done]
                assert not barred, f"{user} on {host.name} does not get {', '.join(barred)}"
            said = host.run("aws sts get-caller-identity", user=ATTACKER)
            assert (said.returncode, said.stderr) == (253, "\nUnable to locate credentials\n")


def test_a_job_has_no_more_than_who_submitted_it(cluster: Cluster) -> None:
    until_idle(cluster)
    job = "cd /tmp; srun -N1 sh -c 'aws sts get-caller-identity'"
    done = cluster.controller.run(job, user=ATTACKER)
    assert "Unable to locate credentials" in done.stderr
    found = json.loads(output(cluster.controller, "srun -N1 aws sts get-caller-identity"))
    assert found["Arn"].endswith(f"/{cluster.workers[0].name}")


def test_what_is_left_without_the_rule_is_noticed(cluster: Cluster) -> None:
    """Every attack succeeds without it: none fails for a reason of its own."""
    (worker,) = cluster.workers
    output(worker, "for f in -4 -6; do while ip $f rule del priority 1 2> /dev/null; do :; done; done")
    assert all(tried(worker, cluster.stack.bucket, ATTACKER).values())
    for command in ("hyperpod-health", "hyperpod-validate"):
        said = worker.run(f"/opt/hyperpod/bin/{command}")
        assert said.returncode == 1
        assert f"every user reaches {V4} and {V6[1:-1]}, and gets the role of this node" in said.stdout
    output(worker, f"systemctl restart {metadata_guard.UNIT}")
    assert not any(tried(worker, cluster.stack.bucket, ATTACKER).values())
    output(worker, "/opt/hyperpod/bin/hyperpod-health")
    assert units.UNITS in output(worker, f"systemctl show -P FragmentPath {metadata_guard.UNIT}")


def until_idle(cluster: Cluster) -> None:
    output(cluster.controller, "until sinfo -h -t idle -o %D | grep -q 1; do sleep 0.2; done", timeout=30)


def test_a_role_is_given_to_whom_it_is_named_for_and_to_nobody_else(cluster: Cluster) -> None:
    account, (worker,) = cluster.stack.account, cluster.workers
    for name in (OWNER, ATTACKER + "-not"):
        account.client("iam").create_role(
            Path=f"/hyperpod/{cluster.stack.cluster_name}/", RoleName=name, AssumeRolePolicyDocument="{}"
        )
    given = json.loads(output(worker, f"hyperpod-credentials role {OWNER}", user=OWNER))
    names = {"AccessKeyId": "AWS_ACCESS_KEY_ID", "SecretAccessKey": "AWS_SECRET_ACCESS_KEY"}
    keys = " ".join(f"{variable}={given[key]}" for key, variable in names.items())
    found = json.loads(output(worker, f"{keys} aws sts get-caller-identity", user=OWNER))
    assert f"assumed-role/{OWNER}/hyperpod-{OWNER}" in found["Arn"]
    for name in (OWNER, ATTACKER + "-not", "../" + OWNER):
        refused = worker.run(f"hyperpod-credentials role {name}", user=ATTACKER)
        assert (refused.returncode, refused.stdout) == (1, "")
    assert f"is for the user or the group of that name, and {ATTACKER} is neither" in refused_words(worker)


def refused_words(host: Host) -> str:
    return host.run(f"hyperpod-credentials role {OWNER}", user=ATTACKER).stderr


def test_secrets_of_others_are_not_to_be_had(cluster: Cluster) -> None:
    (worker,) = cluster.workers
    for name in ("rds!db-1", "hyperpod/another/token", f"hyperpod/{cluster.stack.cluster_name}/token"):
        refused = worker.run(f"hyperpod-credentials secret '{name}'", user=ATTACKER)
        assert (refused.returncode, refused.stdout) == (1, "")
    # The last one is the cluster's, and without security.workerSecrets the workers' role may not read it either.
    assert "not authorized to perform: secretsmanager:GetSecretValue" in refused.stderr
