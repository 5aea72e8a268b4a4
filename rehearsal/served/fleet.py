"""The instances of the account's HyperPod clusters, which the clusters' records only count."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Network
from itertools import count

from operations.engine.state import HYPERPOD_CLUSTER

from ..account import Account, Live, Refused
from ..account.provisioning import arriving, missing, types_of

# VPC User Guide, "Subnet CIDR blocks": AWS keeps a subnet's first four addresses.
_FIRST_ADDRESS = 4


@dataclass
class Instance:
    """One instance. It runs from the beginning, since no scripts boot here."""

    group: str
    type: str
    id: str
    address: str
    launched: datetime = field(default_factory=lambda: datetime.now(UTC))


class Fleet:
    """The instances of every cluster. They follow the counts of the clusters' records."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._instances: dict[str, list[Instance]] = {}

    def clusters(self) -> list[Live]:
        """Every HyperPod cluster."""
        return list(self._account.find(HYPERPOD_CLUSTER))

    def cluster(self, name: str) -> Live:
        """The cluster of that name or ARN. Raises Refused."""
        for live in self.clusters():
            if name in (live.inputs["clusterName"], live.id):
                return live
        raise Refused("ResourceNotFound", f"Cluster with name {name} not found.")

    def of(self, cluster: Live) -> list[Instance]:
        """A cluster's instances. Of a group that has become smaller, those of the type that is tried last go first, and
        of these the last ones (SageMaker Developer Guide, Flexible instance groups).
        """
        there = self._instances.setdefault(cluster.id, [])
        groups = {one["instanceGroupName"]: one for one in cluster.inputs["instanceGroups"]}
        wanted = {name: int(one["instanceCount"]) - missing(cluster).get(name, 0) for name, one in groups.items()}
        number = Counter(one.group for one in there)
        order = {(group, kind): at for group, of in groups.items() for at, kind in enumerate(types_of(of))}
        last = sorted(enumerate(there), key=lambda it: (order.get((it[1].group, it[1].type), 0), it[0]), reverse=True)
        for _, one in last:
            if number[one.group] > wanted.get(one.group, 0):
                there.remove(one)
                number[one.group] -= 1
        addresses = self._free(cluster, there)
        for name, most in wanted.items():
            for _ in range(most - number[name]):
                kind = arriving(cluster, groups[name])
                there.append(Instance(name, kind, self._account.new_id("i"), next(addresses)))
        return there

    def _free(self, cluster: Live, there: Sequence[Instance]) -> Iterator[str]:
        subnet = cluster.inputs["vpcConfig"]["subnets"][0]
        block = IPv4Network(self._account.live["aws:ec2/subnet:Subnet", subnet].inputs["cidrBlock"])
        taken = {one.address for one in there}
        return (found for place in count(_FIRST_ADDRESS) if (found := str(block[place])) not in taken)

    def replace(self, one: Instance) -> None:
        """Another instance comes in its place, with the same address (SageMaker Developer Guide, "Manually replace or
        reboot a node using Slurm")."""
        one.id, one.launched = self._account.new_id("i"), datetime.now(UTC)

    def delete(self, cluster: Live, one: Instance) -> None:
        """The instance goes, and its group counts one less."""
        self._instances[cluster.id].remove(one)
        groups = (*cluster.inputs["instanceGroups"], *cluster.outputs["instanceGroups"])
        # What was asked for and what the cluster says of itself may be one and the same.
        for group in {id(it): it for it in groups if it["instanceGroupName"] == one.group}.values():
            group["instanceCount"] = int(group["instanceCount"]) - 1
