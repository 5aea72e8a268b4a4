"""ARNs against patterns, as IAM matches them.

IAM User Guide, "IAM JSON policy elements: Resource": the first five colons separate an ARN's parts. ``*`` and ``?``
match characters within one part; in the last part they match anything.
"""

import re
from fnmatch import fnmatchcase
from functools import cache

_PARTS = 6
PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
# Characters without a slash: a bucket's name has none, so bucket/key does not match a bucket.
_NAME = "\0"
_WITHOUT_SLASH = ("BucketName",)


def matches(pattern: str, arn: str) -> bool:
    """Whether a policy's resource, ``*`` or an ARN with wildcards, matches this ARN. Case-sensitive."""
    if pattern == "*":
        return True
    parts, wanted = pattern.split(":", _PARTS - 1), arn.split(":", _PARTS - 1)
    return len(parts) == len(wanted) and all(
        fnmatchcase(text, part.replace("[", "[[]")) for part, text in zip(parts, wanted, strict=True)
    )


def overlaps(pattern: str, published: str) -> bool:
    """Whether some ARN matches both a policy's pattern and an ARN of the reference, with its ``${Placeholders}``."""
    if published == "*":
        return pattern == "*"
    return _overlap(pattern, published)


@cache
def _overlap(pattern: str, published: str) -> bool:
    parts = pattern.split(":", _PARTS - 1)
    wanted = [_wild(part) for part in published.split(":", _PARTS - 1)]
    return len(parts) == len(wanted) and all(map(_common, parts, wanted))


def _wild(part: str) -> str:
    return PLACEHOLDER.sub(lambda name: _NAME if name[1] in _WITHOUT_SLASH else "*", part)


def _common(one: str, other: str) -> bool:
    """Whether some string matches both patterns."""
    seen: dict[tuple[int, int], bool] = {}

    def common(i: int, j: int) -> bool:
        if (i, j) not in seen:
            seen[i, j] = _from(i, j)
        return seen[i, j]

    def _from(i: int, j: int) -> bool:
        if i == len(one) and j == len(other):
            return True
        for text, at, against, there, swap in ((one, i, other, j, False), (other, j, one, i, True)):
            if at < len(text) and text[at] in "*" + _NAME:
                further = there < len(against) and _meet(text[at], against[there])
                empty = common(there, at + 1) if swap else common(at + 1, there)
                return empty or (further and (common(there + 1, at) if swap else common(at, there + 1)))
        return i < len(one) and j < len(other) and _meet(one[i], other[j]) and common(i + 1, j + 1)

    return common(0, 0)


def _meet(one: str, other: str) -> bool:
    """Whether two pattern characters can match the same character."""
    if _NAME in (one, other):
        return "/" not in (one, other)
    return one == other or bool({one, other} & {"*", "?"})
