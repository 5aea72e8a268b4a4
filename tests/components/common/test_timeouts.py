"""No provider gives up on AWS while AWS may still be at work."""

import pytest

from components.common import timeouts
from operations.engine.durations import _changes, durations
from operations.engine.state import HYPERPOD_CLUSTER
from tests.golden.stacks import GOLDEN, state_of

# Their limits are with their resources.
ELSEWHERE = {HYPERPOD_CLUSTER, "kubernetes:helm.sh/v3:Release"}
MINUTE, SPARE = 60, 3
SLOW = {
    key.partition("/Gateway")[0]
    for key, row in durations().items()
    if row.seconds > MINUTE and not key.startswith("kubernetes:")
} | {key for key, row in _changes().items() if max(row.update or 0, row.delete or 0) > MINUTE}


def test_every_type_that_takes_a_while_has_three_times_as_long() -> None:
    assert timeouts.table().keys() >= SLOW - ELSEWHERE
    for key, row in timeouts.table().items():
        took, changed = durations()[key].seconds, _changes().get(key)
        assert (row.create or row.default_create) * MINUTE >= SPARE * took, key
        assert (row.update or row.default_update) * MINUTE >= SPARE * ((changed and changed.update) or 0), key
        assert (row.delete or row.default_delete) * MINUTE >= SPARE * ((changed and changed.delete) or 0), key


@pytest.mark.parametrize("name", GOLDEN)
def test_resources_have_the_limits_of_the_table(name: str) -> None:
    seen = set()
    for resource in state_of(name).values():
        row = timeouts.table().get(resource.type)
        if row is None or resource.external:
            continue
        longer = {"create": row.create, "update": row.update, "delete": row.delete}
        wanted = {key: f"{minutes}m" for key, minutes in longer.items() if minutes}
        if wanted:
            assert resource.options.get("customTimeouts") == wanted, resource.name
            seen.add(resource.type)
    assert len(seen) >= (1 if "network" in GOLDEN[name].settings else 2), seen
