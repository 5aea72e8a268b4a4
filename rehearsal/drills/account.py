"""Drills of the deployment: what AWS refuses, delays or loses while a stack goes up and down."""

from collections.abc import Callable

from components.config import Config
from operations.engine.state import HYPERPOD_CLUSTER

from ..account import RETRIES, Fault
from ..account.faults import Call, FaultKind
from ..checks import require
from ..engines.embedded import CANCELLED
from .deployer import Deployer, Ground
from .model import Drill, Finding, drills

# After so many steps a deployment or a destroy is cut short, and each time after as many more (drills.csv names it).
_STEPS = 30
# A deployment needs fewer attempts than this, whatever happens to it.
_MOST = 100


def _recovered(deployer: Deployer, said: str, before: dict[str, str]) -> Finding:
    """Whoever deploys fixes the cause and deploys again. What HyperPod keeps requesting comes by itself."""
    began = deployer.clock
    deployer.account.faults.clear()
    deployer.account.quotas.clear()
    deployer.nodes_come()
    deployer.settle()
    _must(deployer.up())
    seconds = deployer.clock - began
    deployer.settled()
    return Finding(said, deployer.lost(before), deployer.leave(), seconds)


def _must(failure: str) -> None:
    require(not failure, failure)


def _failing(ground: Ground, *faults: Fault, **quotas: int) -> Finding:
    with ground.deployer(*faults, **quotas) as deployer:
        failure = deployer.up()
        said = "\n".join([*deployer.account.awaited(), *filter(None, [failure])])
        require(said, "nothing failed, and nothing is missing")
        return _recovered(deployer, said, deployer.holdings())


def _quota(ground: Ground) -> Finding:
    return _failing(ground, **{ground.config.worker_groups[0].type.name: 0})


def _throttled(ground: Ground) -> Finding:
    """Every type in turn: its first create, then its first update, then its first delete."""
    with ground.deployer() as deployer:
        types = {one.type for one in ground.planned().values() if one.in_account}
        said, seconds = _each_throttled(deployer, "create", types, lambda: [deployer.up()])
        before = deployer.holdings()
        changed = ground.tagged()
        _each_throttled(deployer, "update", types, lambda: [deployer.up(changed)])
        lost = deployer.lost(before)
        _each_throttled(deployer, "delete", types, deployer.destroy)
        return Finding(said, lost, deployer.account.leftovers(), seconds)


def _each_throttled(deployer: Deployer, call: Call, types: set[str], act: Callable[[], list[str]]) -> tuple[str, float]:
    """Repeat an act until no request is throttled any more. Returns what was said first, and the time since then."""
    faults = [Fault(one, "throttling", RETRIES, call=call) for one in sorted(types)]
    deployer.account.faults = list(faults)
    said, began = "", 0.0
    for _ in range(_MOST):
        failures = [failure for failure in act() if failure]
        if not failures:
            break
        strange = [failure for failure in failures if "Rate exceeded" not in failure]
        require(not strange, f"{call}, throttled: {strange[:1]}")
        if not said:
            said, began = failures[0], deployer.clock
        if call == "update":
            deployer.settle()
    require(not failures, f"{call}: still failing: {failures[:1]}")
    missed = [fault.target for fault in faults if 0 < fault.hits < RETRIES or (call == "create" and not fault.hits)]
    require(said and not missed, f"{call}: not throttled: {', '.join(missed)}")
    deployer.account.faults.clear()
    return said, deployer.clock - began


def _expired(ground: Ground) -> Finding:
    """Credentials expire at several points of one deployment, and then of its destruction."""
    with ground.deployer() as deployer:
        account, said, seconds = deployer.account, "", 0.0
        for _ in range(_MOST):
            account.faults = [Fault(kind="expired", nth=account.creates + _STEPS)]
            failure = deployer.up()
            if not failure:
                break
            require("ExpiredToken" in failure, failure)
            said, seconds = said or failure, 0.0 if said else deployer.clock
        require(said and not failure, "the credentials never expired")
        seconds = deployer.clock - seconds
        before = deployer.holdings()
        deployer.destroy(until=_STEPS)
        account.faults = [Fault(kind="expired", nth=0)]
        failures = deployer.destroy()
        require(failures and all("ExpiredToken" in one for one in failures), f"destroy: {failures[:1]}")
        account.faults.clear()
        kept = {name: one for name, one in before.items() if name in deployer.holdings()}
        return Finding(said, deployer.lost(kept), deployer.leave(), seconds)


def _two_at_once(ground: Ground) -> Finding:
    """Somebody deploys the same stack from a backend of their own, while and after the first one does."""
    with ground.deployer() as first:
        second = Deployer(ground.project, first.account)
        require(first.up(until=_STEPS) == CANCELLED, "the first deployment was over too soon")
        said = second.up()
        require(said, "the second deployment did not fail")
        began = first.clock
        _must(first.up())
        seconds, before = first.clock - began, first.holdings()
        require(again := second.up(), "the second deployment did not fail once the first was done")
        require("xists" in again or "ResourceInUse" in again, again)
        left = second.destroy()
        require(not left, f"the second cannot clear up: {left[:1]}")
        harmed = first.drifted()
        require(not harmed, f"the second has changed what the first made: {', '.join(harmed)}")
        first.settled()
        return Finding(said, first.lost(before), first.leave(), seconds)


def _out_of_reach(ground: Ground) -> Finding:
    """Whoever deploys loses the way to the Kubernetes API, as a VPN ends, and again before the destroy."""
    with ground.deployer(Fault(kind="unreachable")) as deployer:
        account = deployer.account
        said = deployer.up()
        require(said, "the deployment did not fail")
        began, before = deployer.clock, deployer.holdings()
        account.faults.clear()
        _must(deployer.up())
        seconds = deployer.clock - began
        deployer.settled()
        lost, objects = deployer.lost(before), _objects(deployer)
        account.faults = [Fault(kind="unreachable")]
        failures = deployer.destroy()
        require(failures and all("unreachable" in one for one in failures), f"destroy: {failures[:1]}")
        gone = objects - _objects(deployer)
        require(not gone, f"the state forgot {', '.join(sorted(gone))}")
        account.faults.clear()
        return Finding(said, lost, deployer.leave(), seconds)


def _objects(deployer: Deployer) -> set[str]:
    """The objects that the Kubernetes API must be asked to delete: what is in others goes with them."""
    state = deployer.state
    return {one.name for one in state.values() if one.type.startswith("kubernetes:") and not one.deleted_with}


def _interrupted(ground: Ground) -> Finding:
    """Destroy is interrupted again and again, and repeated."""
    with ground.deployer() as deployer:
        _must(deployer.up())
        began, times, failures = deployer.clock, 0, [CANCELLED]
        while failures == [CANCELLED] and times < _MOST:
            failures = deployer.destroy(until=_STEPS)
            times += failures == [CANCELLED]
        require(times > 1 and not failures, f"interrupted {times} times, then: {failures[:1]}")
        seconds = deployer.clock - began
        # And once more, but then somebody wants it back.
        _must(deployer.up())
        deployer.destroy(until=_STEPS)
        _must(deployer.up())
        deployer.settled()
        return Finding(f"destroy: {CANCELLED}, {len(deployer.state)} resources left", [], deployer.leave(), seconds)


def _late(target: str, kind: FaultKind) -> Callable[[Ground], Finding]:
    """A resource of the stack is missing or incomplete."""
    return lambda ground: _failing(ground, Fault(target, kind))


def _of(orchestrator: str, why: str) -> Callable[[Config], str]:
    return lambda config: "" if config.settings.orchestrator == orchestrator else why


DRILLS: tuple[Drill[Ground], ...] = drills(
    "account",
    {
        "capacity": _late(HYPERPOD_CLUSTER, "capacity"),
        "controller-capacity": _late(HYPERPOD_CLUSTER, "controller-capacity"),
        "quota": _quota,
        "throttling": _throttled,
        "credentials": _expired,
        "script-on-all": _late(HYPERPOD_CLUSTER, "lifecycle"),
        "fsx-unavailable": _late("aws:fsx/lustreFileSystem:LustreFileSystem", "unavailable"),
        "kubernetes-unreachable": _out_of_reach,
        "two-deploys": _two_at_once,
        "destroy-cut-short": _interrupted,
    },
    {
        "controller-capacity": _of("slurm", "an EKS stack has no Slurm controller"),
        "kubernetes-unreachable": _of("eks", "a Slurm stack has no Kubernetes API"),
    },
)
