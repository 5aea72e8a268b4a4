"""Drills of a deployed stack that changes without Pulumi: somebody deletes resources, or the scripts get newer."""

from pulumi import StringAsset

from operations.engine.events import name_of
from operations.engine.state import ResourceState, State

from ..checks import require
from .deployer import Deployer, Ground
from .model import Drill, Finding, drills

_OBJECT = "aws:s3/bucketObjectv2:BucketObjectv2"


def _leaves(state: State) -> list[ResourceState]:
    """One resource of each type on which no other depends."""
    needed = {urn for one in state.values() for urn in one.dependencies}
    found: dict[str, ResourceState] = {}
    for one in state.values():
        if one.in_account and one.urn not in needed:
            found.setdefault(one.type, one)
    return list(found.values())


def _without(deployer: Deployer, gone: ResourceState) -> dict[str, str]:
    """Somebody deletes a resource in the console. Returns what else holds data."""
    deployer.account.delete(gone.type, gone.id)
    return deployer.holdings()


def _deleted(ground: Ground) -> Finding:
    """One leaf after the other: `refresh` says which is gone, and the next update makes it again, and nothing else."""
    with ground.deployer() as deployer:
        _must(deployer.up())
        said, seconds, lost = "", 0.0, []
        for gone in _leaves(deployer.state):
            before, began = _without(deployer, gone), deployer.clock
            (found,) = deployer.drifted() or ["nothing"]
            require(found == f"{gone.name} (delete)", f"refresh finds, without {gone.name}: {found}")
            said = said or f"refresh: {found}"
            _must(deployer.up())
            made = {name_of(urn): what for urn, what in deployer.changes.items()}
            require(made == {gone.name: "create"}, f"without {gone.name}, an update does: {made}")
            seconds = max(seconds, deployer.clock - began)
            lost += deployer.lost(before)
        deployer.settled()
        return Finding(said, lost, deployer.leave(), seconds)


def _unnoticed(ground: Ground) -> Finding:
    """Leaves are gone and nobody refreshes: a change of one fails and says so, and destroy still ends."""
    with ground.deployer() as deployer:
        _must(deployer.up())
        leaves = _leaves(deployer.state)
        for gone in leaves:
            before = _without(deployer, gone)
        deployer.settled()
        tagged = ground.tagged()
        said = deployer.up(tagged)
        require(said, "an update of what is gone did not fail")
        began = deployer.clock
        deployer.drifted()
        _must(deployer.up(tagged))
        seconds, lost = deployer.clock - began, deployer.lost(before)
        for gone in _leaves(deployer.state):
            _without(deployer, gone)
        return Finding(said, lost, deployer.leave(), seconds)


def _scripts(ground: Ground) -> Finding:
    """The nodes have booted with older scripts: an update replaces the objects, and no node notices before it boots."""
    with ground.deployer() as deployer:
        _must(deployer.up())
        scripts = [one for one in deployer.state.values() if one.type == _OBJECT and one.name.endswith(".py")]
        for one in scripts:
            older = {**one.inputs, "source": StringAsset("# an older release\n")}
            deployer.account.update(one.type, one.id, older)
            one.inputs = older
        before, began = deployer.holdings(), deployer.clock
        _must(deployer.up())
        changed = {urn: what for urn, what in deployer.changes.items() if urn not in {one.urn for one in scripts}}
        require(len(deployer.changes) >= len(scripts) > 0, "the scripts in the bucket stay as they were")
        require(not changed, f"newer scripts also change {', '.join(changed)}")
        said = f"preview: {len(deployer.changes)} to update, all of them objects in the bucket"
        seconds, lost = deployer.clock - began, deployer.lost(before)
        return Finding(said, lost, deployer.leave(), seconds)


def _must(failure: str) -> None:
    require(not failure, failure)


DRILLS: tuple[Drill[Ground], ...] = drills(
    "account", {"deleted-behind": _deleted, "deleted-unnoticed": _unnoticed, "scripts-changed": _scripts}
)
