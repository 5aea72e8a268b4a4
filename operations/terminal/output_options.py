"""How every verb answers, whatever it is: as JSON, YAML or a wide table, in silence, or with every call to AWS."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import yaml

from ..failures import bad_input

Output = Literal["json", "yaml", "wide"]


@dataclass
class Manner:
    """What this command line asked for. ``line``: the command line itself, to be run again."""

    line: str = ""
    output: Output | None = None
    quiet: bool = False
    verbose: bool = False

    def take(self, words: Sequence[str]) -> list[str]:
        """The words without -o, -q and -v, which may be anywhere before ``--``. Raises Failure for another format."""
        self.line = shlex.join(["hyperpod", *words])
        self.output, self.quiet, self.verbose = None, False, False
        end = words.index("--") if "--" in words else len(words)
        own, rest = iter(words[:end]), list(words[end:])
        left: list[str] = []
        output: str | None = None
        for word in own:
            if word in ("-q", "--quiet"):
                self.quiet = True
            elif word in ("-v", "--verbose"):
                self.verbose = True
            elif word in ("-o", "--output") or word.startswith("--output="):
                output = word.partition("=")[2] or next(own, "")
            else:
                left.append(word)
        return [*left, *(() if output is None else self._asked(output, left)), *rest]

    def _asked(self, output: str, words: Sequence[str]) -> list[str]:
        for known in get_args(Output):
            if output == known:
                self.output = known
                return [] if known == "wide" or "--json" in words else ["--json"]
        raise bad_input(f'-o takes {", ".join(get_args(Output))}, not "{output}"', "-o json")


def text_of(document: Any, plain: Callable[[Any], Any] | None = None) -> str:
    """A result for machines, as JSON or as YAML. ``plain`` makes of a value what JSON has."""
    text = json.dumps(document, indent=2, default=plain)
    if MANNER.output == "yaml":
        text = yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True).rstrip()
    return text


MANNER = Manner()
