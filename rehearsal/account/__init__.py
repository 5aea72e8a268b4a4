"""The embedded AWS account: create, read, update and delete, by resource type, with AWS's own refusals.

moto plays the account where it is right. Elsewhere a record is accepted if the published schema says it is valid. Both
follow the same rules on references, quotas and faults, which are here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from moto import mock_aws

# Each makes its types known.
from . import (  # noqa: F401
    access_entries,
    compute_quotas,
    ec2,
    eks,
    emptying,
    hyperpod,
    iam,
    kubernetes,
    mlflow,
    moto_settings,
    notices,
    rds,
    records,
    releases,
    s3,
    scrapers,
    services,
)
from .audit import Inventory, take_inventory
from .books import ACCOUNT_ID, Books, HalfMade, Live, Refused
from .callers import Caller, calling
from .faults import Call, Fault
from .integrity import check_exist, check_unused, known_identifiers, references
from .kinds import after_update, find_kind
from .policies import check_policies
from .provisioning import arrive, awaited, failed_scripts, note, note_lacking, short_of
from .quotas import check_quota
from .tags import check_tags
from .watching import as_aws

__all__ = ["ACCOUNT_ID", "RETRIES", "Account", "Caller", "Fault", "HalfMade", "Live", "Refused"]

T = TypeVar("T")
# pulumi-aws retries throttled requests 25 times by default; a few retries show the same.
RETRIES = 5

moto_settings.apply()


class Account(Books):
    """One AWS account in one region. Use as a context manager: moto's patches last for the ``with`` block.

    ``caller`` is who creates, changes and deletes; without one, everything is allowed.
    """

    def __init__(
        self,
        region: str,
        *,
        faults: Sequence[Fault] = (),
        quotas: Mapping[str, int] | None = None,
        caller: Caller | None = None,
    ) -> None:
        super().__init__(region, quotas)
        self.caller = caller
        self.faults = list(faults)
        # How many creates have been asked for.
        self.creates = 0
        self.lock = threading.RLock()
        self._mock = mock_aws()
        self._baseline = Inventory()

    def __enter__(self) -> Account:
        self._mock.start(reset=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._mock.stop()

    def judge(self, type_token: str, inputs: Mapping[str, Any]) -> None:
        """The checks that a preview can make: policies whose content is known must grant something.

        Raises Refused.
        """
        check_policies(type_token, inputs, self.partition)

    def create(
        self, type_token: str, name: str, inputs: Mapping[str, Any], *, at: float = 0.0, ready_at: float = 0.0
    ) -> tuple[str, dict[str, Any]]:
        """Create a resource, as AWS would at the virtual second ``at``. Returns its id and outputs; raises Refused."""
        kind = _kind(type_token)
        with self.lock:
            self.creates += 1
            return self._attempt(
                lambda: self._create(kind, name, dict(inputs), at, ready_at), "create", type_token, name
            )

    def _create(
        self, kind: Any, name: str, inputs: dict[str, Any], at: float, ready_at: float
    ) -> tuple[str, dict[str, Any]]:
        named = frozenset(references(inputs))
        self._check_exist(named)
        check_quota(self, kind.token, inputs)
        check_policies(kind.token, inputs, self.partition)
        check_tags(kind.token, inputs)
        self.now = at
        with calling(self, self.caller, "create", kind.token, inputs) as tag:
            resource_id, outputs = kind.create(self, inputs)
            tag(outputs)
        known = kind.described(inputs)
        live = Live(kind.token, name, resource_id, known, {**known, **outputs}, ready_at, at, references=named)
        self.live[kind.token, resource_id] = live
        return resource_id, live.outputs

    def update(
        self, type_token: str, resource_id: str, inputs: Mapping[str, Any], *, at: float = 0.0
    ) -> dict[str, Any]:
        """Change a resource in place, as AWS would at the virtual second ``at``. Raises Refused."""
        kind, live = _kind(type_token), self._existing(type_token, resource_id)
        with self.lock:
            return self._attempt(lambda: self._update(kind, live, inputs, at), "update", type_token, live.name)

    def _update(self, kind: Any, live: Live, inputs: Mapping[str, Any], at: float) -> dict[str, Any]:
        named = frozenset(references(inputs))
        self._check_exist(named)
        check_policies(kind.token, inputs, self.partition)
        check_tags(kind.token, inputs)
        self.now = at
        if kind.update is None:
            # Only tags change in place.
            live.inputs = dict(inputs)
            return live.outputs
        with calling(self, self.caller, "update", kind.token, inputs, live) as tag:
            computed = _as_refusals(lambda: kind.update(self, live, inputs))
            tag(live.outputs)
        known = kind.described(inputs)
        live.outputs = {**after_update(live.outputs, live.inputs, known), **computed}
        live.inputs, live.references = known, named
        # A resource that changes in place existed before this deployment's clock began.
        live.ready_at = min(live.ready_at, at)
        return live.outputs

    def read(self, type_token: str, resource_id: str) -> dict[str, Any]:
        """The outputs of a resource. Raises Refused if it does not exist."""
        return dict(self._existing(type_token, resource_id).outputs)

    def refreshed(self, type_token: str, resource_id: str, known: Mapping[str, Any]) -> dict[str, Any]:
        """What a refresh makes of inputs: what AWS has, in the order that is known where only the order differs."""
        kind, live = _kind(type_token), self._existing(type_token, resource_id)
        differing = kind.differing(known, live.inputs)
        return {key: value if key in differing else known.get(key) for key, value in live.inputs.items()}

    def delete(self, type_token: str, resource_id: str) -> None:
        """Delete a resource. Raises Refused if something still uses it.

        Somebody else may have deleted it already. All providers call that a success (pulumi-aws-native,
        provider/pkg/client/client.go, Delete; terraform-provider-aws, pull request 36933).
        """
        with self.lock:
            live = self.live.get((type_token, resource_id))
            if live is not None:
                self._attempt(lambda: self._delete(live), "delete", type_token, live.name)

    def _delete(self, live: Live) -> None:
        check_unused(live, self.live.values())
        emptying.check(self, live)
        kind = _kind(live.type)
        with calling(self, self.caller, "delete", kind.token, live.inputs, live):
            _as_refusals(lambda: kind.delete(self, live))
        del self.live[live.type, live.id]

    def keep(self, type_token: str, resource_id: str) -> None:
        """Keep a resource on purpose (retain on delete), so that it is not a leftover."""
        if live := self.live.get((type_token, resource_id)):
            live.ours = False
            self.kept.add(live.id)

    def diff(self, type_token: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[set[str], set[str]]:
        """Which inputs differ, and which of them replace the resource."""
        kind = _kind(type_token)
        changed = kind.differing(old, new)
        return changed, kind.replaces(old, new) if changed else set()

    def awaited(self) -> list[str]:
        """What AWS tells of instances that its clusters are in service without."""
        return awaited(self)

    def failed_scripts(self) -> list[str]:
        """Which nodes did not come because their scripts failed."""
        return failed_scripts(self)

    def request_again(self) -> bool:
        """What HyperPod does by itself until its clusters have all instances. Returns whether some came."""
        return not any(fault.late and fault.hits < fault.count for fault in self.faults) and arrive(self)

    def leftovers(self) -> list[str]:
        """What is new in the account, and what is missing. Empty after a clean destroy."""
        now = take_inventory(self)
        names = {live.id: live.name for live in self.live.values()}
        found = [
            f"{what} {one}" + (f" ({names[one]})" if one in names else "")
            for what, ids in now.items()
            for one in sorted(ids - self._baseline.get(what, set()) - self.kept)
        ]
        lost = [
            f"{what} {one} is gone, which was not ours"
            for what, ids in self._baseline.items()
            for one in sorted(ids - now[what])
        ]
        return found + lost

    def accept_as_existing(self) -> None:
        """Treat everything that is now in the account as existing before the stack."""
        for live in self.live.values():
            live.ours = False
        self.creates = 0
        with as_aws():
            self._baseline = {**take_inventory(self), "record": set()}

    def _check_exist(self, named: frozenset[str]) -> None:
        if not named:
            return
        own = known_identifiers(self.live.values())
        lists = {live.outputs["prefixListId"] for live in self.live.values() if live.outputs.get("prefixListId")}
        buckets = {f"s3://{live.id}" for live in self.live.values() if live.type == "aws:s3/bucket:Bucket"}
        check_exist(named, own | lists | buckets)

    def _existing(self, type_token: str, resource_id: str) -> Live:
        try:
            return self.live[type_token, resource_id]
        except KeyError:
            raise Refused("ResourceNotFoundException", f"{resource_id} does not exist") from None

    def _attempt(self, act: Callable[[], T], call: Call, type_token: str, name: str) -> T:
        """Run a call with the injected faults, retrying throttled requests like the provider."""
        for attempt in range(RETRIES):
            fault = next((f for f in self.faults if f.strikes(call, type_token, name, self.creates)), None)
            if fault is None:
                return _as_refusals(act)
            if fault.late:
                made: Any = _as_refusals(act)
                live = self.live[type_token, made[0]]
                if (short := short_of(live, fault.kind, fault.of_type)) is not None:
                    if short:
                        note(live, short, fault.error())
                    if fault.of_type:
                        note_lacking(live, fault.of_type)
                    return made  # type: ignore[no-any-return]  # what act returns
                raise fault.half_made(live)
            if fault.kind != "throttling" or attempt == RETRIES - 1:
                raise fault.error()
        raise AssertionError("unreachable")


def _kind(type_token: str) -> Any:
    kind = find_kind(type_token)
    if kind is None:
        raise Refused("NotRehearsed", f"the embedded account does not know {type_token}")
    return kind


def _as_refusals(act: Callable[[], T]) -> T:
    """Turn boto3's errors into Refused."""
    try:
        return act()
    except ClientError as error:
        raise Refused(error.response["Error"]["Code"], error.response["Error"]["Message"]) from error
    except BotoCoreError as error:
        raise Refused("ValidationError", str(error)) from error
