"""What the configuration asks of the nodes, seen on the nodes."""

from __future__ import annotations

import pytest

from rehearsal.nodes.checks import output, scripts_succeeded, ssh_between_all
from rehearsal.nodes.cluster import Cluster, Metadata, Options

from .conftest import deployed

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]


def test_metadata_without_tokens_is_read_where_the_configuration_allows_it() -> None:
    options = Options(workers=1, metadata=Metadata("v1-only"))
    with deployed("dev", "imdsV1=true") as stack, Cluster(stack, options) as cluster:
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        said = "\n".join(line for run in cluster.scripts.values() for line in run.lines)
        assert "no session token" not in said


def test_home_folders_are_on_the_file_system_that_the_configuration_names() -> None:
    with (
        deployed("dev", 'fsx={"homeFileSystemId":"fs-0123456789abcdef0"}') as stack,
        Cluster(stack, Options(workers=2)) as cluster,
    ):
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        output(cluster.workers[0], "touch ~/notes", user="ubuntu")
        output(cluster.workers[1], "test -O ~/notes", user="ubuntu")
        ssh_between_all(cluster)
