"""The problems of a configuration, in the user's terms, and the one error that carries them all."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

NAMESPACE = "hyperpod"
# The place of a key that no file has; people see what they typed.
BY_OPTION = "an option"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem of the configuration: the key, the mistake, and a correct value.

    ``where`` is the file and line that sets the key, if known.
    """

    key: str
    what: str
    fix: str = ""
    where: str = ""

    def __str__(self) -> str:
        return (
            (f"{self.where}: " if self.where not in ("", BY_OPTION) else "")
            + f"{self.key}: {self.what}"
            + (f"; {self.fix}" if self.fix else "")
        )


# An example for each type of Pulumi.yaml.
_EXAMPLES = {
    "string": "a text, in quotes",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list, as [item, item]",
    "object": "keys with values, as {key: value}",
}


# Keys that were of another type once, and what to write now.
_FORMERLY = {
    "hyperpod:observability": "{prometheus: create, grafana: create} where it was true, {} where it was false",
}


def mistyped(key: str, value: object, wanted: str) -> Problem:
    """Report a value whose type is not the one that Pulumi.yaml has for its key."""
    article = "an" if wanted[0] in "aio" else "a"
    return Problem(key=key, what=f"{value!r} is not {article} {wanted}", fix=_FORMERLY.get(key, _EXAMPLES[wanted]))


def kept_secret(key: str) -> Problem:
    """Report a value that is encrypted in the stack's file, without quoting it."""
    return Problem(
        key=key,
        what="must not be a secret; no key supports it: AWS and the state show its value",
        fix=f"pulumi config set {key} VALUE --plaintext, with a value that others may see",
    )


def is_kept_secret(value: object) -> bool:
    """Whether a value, or part of it, is encrypted: Pulumi writes ``secure: CIPHERTEXT`` in its place."""
    if isinstance(value, Mapping):
        return value.keys() == {"secure"} or any(is_kept_secret(one) for one in value.values())
    return isinstance(value, list | tuple) and any(is_kept_secret(one) for one in value)


class ConfigError(pulumi.RunError):
    """The configuration was refused; ``problems`` holds every reason. Nothing has been created."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(
            f"{count} in the configuration, nothing was created:\n" + "\n".join(f"  {p}" for p in problems)
        )
