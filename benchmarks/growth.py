"""Growth: which figures of a benchmark grow faster than the size."""

from collections.abc import Iterator, Mapping
from itertools import combinations

# By the end of a figure's name: what is too little to compare, since it is mostly noise or a fixed cost.
_LITTLE = {", ms": 20.0, ", s": 0.5}
# A figure may grow by so much more than the size; repeated runs differ by less.
_TOLERATED = 1.5


def faster_than_size(rows: Mapping[tuple[int, int], Mapping[str, float]]) -> Iterator[str]:
    """Figures that grow faster than the nodes, in as many groups, or than the groups, with as many nodes.

    ``rows`` are by groups and nodes.
    """
    for name in next(iter(rows.values())):
        little = next((value for end, value in _LITTLE.items() if name.endswith(end)), 0.0)
        for before, after in combinations(sorted(rows), 2):
            if (before[0] == after[0]) != (before[1] == after[1]):
                size = (after[0] / before[0]) * (after[1] / before[1])
                was, became = max(rows[before][name], little), rows[after][name]
                if size > 1 and became > was * size * _TOLERATED:
                    yield f"{name}: {was:,.1f} with {before} groups and nodes, {became:,.1f} with {after}"
