"""What the tests of Slurm's daemons have in common."""

import json

from hyperpod_node.facts.model import Node
from hyperpod_node.storage import fsx

from tests.lifecycle.rig import FakeHost


def ready(host: FakeHost) -> Node:
    """The steps' view of a host on which Slurm is what comes next."""
    node = host.node()
    fsx.run(node)
    host.remember()
    node.enter("slurm")
    return node


def two_controllers(host: FakeHost) -> None:
    """A second controller in the node's resource_config.json, 10.1.0.20."""
    path = host.path(host.settings.resource_config)
    document = json.loads(path.read_text())
    document["InstanceGroups"][0]["Instances"].append(
        {"InstanceName": "controller-2", "CustomerIpAddress": "10.1.0.20", "InstanceId": "i-2"}
    )
    path.write_text(json.dumps(document))
