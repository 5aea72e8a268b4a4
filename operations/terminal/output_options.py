"""The options of every verb: the form of its result, silence, and the names of its calls to AWS."""

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Annotated, Any, Literal

import typer
import yaml

Output = Annotated[
    Literal["json", "yaml", "wide"] | None, typer.Option("--output", "-o", help="Print the result in this form.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result: no progress, no notes.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also name each call to AWS.")]
_TYPES: dict[str, Any] = {"output_form": Output, "quiet": Quiet, "verbose": Verbose}


@dataclass
class OutputOptions:
    """The options of this command line, and its words."""

    words: Sequence[str] = field(default_factory=list)
    output: Literal["json", "yaml", "wide"] | None = None
    quiet: bool = False
    verbose: bool = False

    @property
    def line(self) -> str:
        """The command line, to be run again."""
        return shlex.join(["hyperpod", *self.words])

    @property
    def as_json(self) -> bool:
        """Whether the result is for a program; also where Typer has refused the words."""
        own = self.words[: self.words.index("--")] if "--" in self.words else self.words
        return bool({"--json", "json", "yaml", "--output=json", "--output=yaml"} & {*own})

    def begin(self, words: Sequence[str]) -> None:
        """Forget the command line before."""
        self.words, self.output, self.quiet, self.verbose = list(words), None, False, False

    def add(self, output_form: Literal["json", "yaml", "wide"] | None, quiet: bool, verbose: bool) -> None:
        """Take what stands before or after the verb."""
        self.output = output_form or self.output
        self.quiet, self.verbose = self.quiet or quiet, self.verbose or verbose


OPTIONS = OutputOptions()


def with_output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The verb with these options; without ``-o`` where it has no result."""
    own = signature(command, eval_str=True)
    has_result = "as_json" in own.parameters
    more = {name: kind for name, kind in _TYPES.items() if has_result or name != "output_form"}

    def called(**given: Any) -> Any:
        OPTIONS.add(given.pop("output_form", None), given.pop("quiet"), given.pop("verbose"))
        if has_result:
            given["as_json"] |= OPTIONS.output in ("json", "yaml")
        return command(**given)

    parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own.parameters.values()]
    parameters += [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=None if name == "output_form" else False)
        for name, kind in more.items()
    ]
    called.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__doc__ = command.__doc__
    return called


def text_of(document: Any, plain: Callable[[Any], Any] | None = None) -> str:
    """A result for programs, as JSON or as YAML. ``plain`` converts values that JSON lacks."""
    text = json.dumps(document, indent=2, default=plain)
    if OPTIONS.output == "yaml":
        text = yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True).rstrip()
    return text
