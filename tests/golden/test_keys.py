"""What the model says that a change of a key does is what the embedded account does of it."""

import re
from typing import Any

import pytest

from components.config import Config, parse
from operations.engine.data_resources import PRECIOUS
from rehearsal.account import Account
from rehearsal.engines.deployment import up
from rehearsal.engines.program import ProgramError
from rehearsal.existing import prepare
from tests.golden.changes import CHANGES, STORIES
from tests.golden.files import read
from tests.golden.keys import KINDS, LEAVES, UPDATES, changed, laid
from tests.golden.stacks import GOLDEN, deployed, files_of, on_the_day
from tests.support import config, project

# What nodes read when they boot.
_AT_BOOT = re.compile(r"lifecycle-(?!(policy|access-log)$)|slurm-ssh-public-key$|identity-\w+-instance$")
# What the nodes' role allows changes at once; with it alone they do nothing new.
_ALLOWED = "identity-worker"


def expect(keys: set[str], refused: str | None, did: dict[str, list[str]], lost: set[str]) -> None:
    """Hold what an update of these keys came to against what the model says of each."""
    kinds = {key: KINDS[key] for key in keys}
    if refused:
        named = {re.sub(r"\[\d+\]", "", key) for key in re.findall(r"^  hyperpod:([\w.\[\]]+):", refused, re.M)}
        assert any(kind in ("refused", "in part") for kind in kinds.values()), f"{kinds}: {refused}"
        assert any(key.startswith(name) for key in keys for name in named), f"{keys}: {refused}"
        return
    assert "refused" not in kinds.values(), f"{kinds}: {did}"
    assert not lost, f"{kinds}: {lost}"
    touched = {name for names in did.values() for name in names}
    if set(kinds.values()) == {"at boot"}:
        assert all(map(_AT_BOOT.search, touched - {_ALLOWED})), f"{kinds}: {did}"
    elif touched:
        assert not all(map(_AT_BOOT.search, touched)), f"{kinds}: {did}"


def recorded() -> list[tuple[str, str]]:
    return [(stack, name) for stack, story in STORIES.items() for name in story.updates]


@pytest.fixture(scope="module")
def told() -> dict[str, dict[str, Any]]:
    return read(CHANGES)


def known_before(stack: str, update: str, told: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The settings that a story has come to when an update is made."""
    known = dict(STORIES[stack].settings)
    for name, settings in STORIES[stack].updates.items():
        if name == update:
            break
        if not told[stack][name].get("refused"):
            known |= settings
    return known


@pytest.mark.parametrize(("stack", "update"), recorded())
def test_a_recorded_change_does_what_the_model_says_of_its_keys(
    stack: str, update: str, told: dict[str, dict[str, Any]]
) -> None:
    known, found = known_before(stack, update, told), told[stack][update]
    if not STORIES[stack].updates[update] or "twice" in update:
        return
    keys = changed(
        config(stack, **known).settings, config(stack, **{**known, **STORIES[stack].updates[update]}).settings
    )
    did = {one: found.get(one, []) for one in ("created", "updated", "replaced", "deleted")}
    expect(keys, found.get("refused"), did, set(did["replaced"]))


def both(stack: str, update: dict[str, Any]) -> tuple[Config, Config]:
    chosen = GOLDEN[stack]
    before, after = chosen.settings, laid(chosen.settings, update)
    return config(chosen.stack, **before), config(chosen.stack, **after)


def test_every_key_is_changed_in_a_story_or_here(told: dict[str, dict[str, Any]]) -> None:
    seen: set[str] = set()
    for stack, update in recorded():
        known = known_before(stack, update, told)
        after = {**known, **STORIES[stack].updates[update]}
        seen |= changed(config(stack, **known).settings, config(stack, **after).settings)
    for stack, updates in UPDATES.items():
        for one in updates:
            before, now = both(stack, one)
            seen |= changed(before.settings, now.settings)
    assert seen >= LEAVES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "number"), [(stack, number) for stack, updates in UPDATES.items() for number in range(len(updates))]
)
def test_a_change_of_a_key_does_what_the_model_says(stack: str, number: int) -> None:
    """By a preview on a golden deployment, whose account is not there any more."""
    update, chosen, before = UPDATES[stack][number], GOLDEN[stack], deployed(stack)
    loaded = project(chosen.stack, **laid(chosen.settings, update))
    was, after = both(stack, update)
    keys = changed(was.settings, after.settings)
    with Account(after.region.name) as account, on_the_day(), files_of(stack):
        prepare(account, after)
        try:
            planned = up(loaded, account, old=before.state, old_outputs=before.outputs, preview=True, began=10.0**6)
        except ProgramError as refused:
            expect(keys, str(refused), {}, set())
            return
    assert not planned.failure, planned.failure
    did: dict[str, list[str]] = {}
    lost = set()
    for urn, operation in planned.operations.items():
        resource = before.state.get(urn) or planned.state[urn]
        if operation != "same" and resource.in_account:
            did.setdefault(operation, []).append(resource.name)
            if operation in ("replace", "delete") and resource.type in PRECIOUS and not PRECIOUS[resource.type].asked:
                lost.add(resource.name)
    # A key deletes that bucket, and `hyperpod deploy` asks once more.
    expect(keys, None, did, lost - {"mlflow-files"})
    if set(keys) - {"fsx.retainOnDelete", "protect", "nodeProvisioning"}:
        assert did, f"{update} changes nothing"


def test_the_configuration_of_every_update_is_good() -> None:
    assert all(
        parse(project(GOLDEN[stack].stack, **laid(GOLDEN[stack].settings, one)).config)
        for stack, updates in UPDATES.items()
        for one in updates
    )
