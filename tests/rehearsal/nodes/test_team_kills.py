"""The same for the steps that only a team's stack has, in an account of their own.

Its stack needs the account that test_kills.py keeps until its last test.
"""

import json

import pytest

from rehearsal.nodes.checks import all_idle, output
from rehearsal.nodes.cluster import Cluster, Options
from tests.rehearsal.nodes import faults

from .conftest import deployed

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]

TEAM = {
    "users": [{"name": "ada", "uid": 2001, "account": "lab"}],
    "slurm": {"accounting": {"database": "local"}, "accounts": [{"name": "lab"}]},
    "security": {"sshOnlyWithJob": True},
}
# The steps that only a team's stack has, on a node where they do something.
OF_A_TEAM = [
    ("controller", "database", 0.25),
    ("controller", "accounting", 0.25),
    ("controller", "slurm-accounts", 0.0),
    ("worker", "people", 0.25),
    ("worker", "ssh-jobs", 0.0),
]


@pytest.mark.timeout(300)
def test_a_node_of_a_team_killed_at_the_steps_for_people_and_accounting() -> None:
    with (
        deployed("dev", *(f"{key}={json.dumps(value)}" for key, value in TEAM.items())) as stack,
        Cluster(stack, Options(workers=1)) as cluster,
    ):
        cluster.start_hosts()
        usual = faults.usual_seconds(cluster)
        for role, step, share in OF_A_TEAM:
            (gone,) = cluster.of_role(role)
            fresh = cluster.fresh_host(gone)
            cluster.take_place(gone, fresh)
            faults.killed_at(cluster, fresh, step, share, usual[fresh.name])
        all_idle(cluster)
        assert output(cluster.controller, "cd /fsx/home/ada; srun -N1 id -un", user="ada") == "ada\n"
