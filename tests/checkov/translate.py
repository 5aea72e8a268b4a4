"""What golden stacks deploy, in the languages that checkov reads: Terraform, CloudFormation and Kubernetes.

pulumi-aws is made from Terraform's provider, so its types and inputs are Terraform's, written differently. Resources of
aws-native are CloudFormation's. References between resources stay references: some of checkov's rules follow them.
Charts are their publishers'; checkov reads pods alone, so each pod template of a job is written as a pod.
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.golden.jobs import rendered
from tests.golden.stacks import told
from tests.support import ROOT

_REFERENCE = re.compile(r"\$\{([\w-]+) (\w+)(?:\.([\w.]+))?\}")
# JSON texts, which golden files have as structures.
_JSON = {"assumeRolePolicy", "configurationValues", "content", "data", "eventPattern", "policy", "policyDocument"}
_MAPS = {"tags"}
# Where the SDK's name is a plural and Terraform's is the name of a repeated block.
_SINGULAR = {"encryptionConfigurations": "encryption_configuration", "rules": "rule"}
_MODULES = {"eks": "EKS", "sagemaker": "SageMaker"}
_LEFT_OUT = {"overrideProvider", "tagsAll", "source"}

Resources = Mapping[str, Mapping[str, Any]]


def terraform_types() -> dict[str, str]:
    """Terraform's name of each type of pulumi-aws that a golden stack has."""
    with (ROOT / "tests/operations/types.csv").open(newline="") as file:
        return {row["type"]: row["terraform"] for row in csv.DictReader(file) if row["terraform"]}


def resources(name: str) -> dict[str, Any]:
    """Every resource of a golden stack, by its key."""
    return {key: entry for entries in told(name).values() for key, entry in entries.items() if _is_one(entry)}


def _is_one(entry: Any) -> bool:
    """Not an output of the stack."""
    return isinstance(entry, Mapping) and {"type", "inputs"} <= entry.keys()


def write(name: str, folder: Path) -> None:
    """A golden stack and its jobs as ``main.tf``, ``cloudformation.json`` and files of ``objects``."""
    (folder / "objects").mkdir(parents=True)
    every = resources(name)
    (folder / "main.tf").write_text("\n".join(terraform(every)))
    (folder / "cloudformation.json").write_text(json.dumps(cloudformation(every), indent=1))
    own = [entry["inputs"] for entry in every.values() if entry["type"].startswith("kubernetes:")]
    jobs = [one for job in (rendered(name) if name.startswith("eks") else {}).values() for one in job.values()]
    for number, manifest in enumerate([*own, *(pod for one in [*own, *jobs] for pod in pods(one))]):
        if "apiVersion" in manifest:
            (folder / "objects" / f"{number}.yaml").write_text(json.dumps(manifest))


def terraform(every: Resources) -> Iterator[str]:
    """Every resource of pulumi-aws as a block of Terraform."""
    types = terraform_types()
    known = {key: f"{types[told['type']]}.{_label(key)}" for key, told in every.items() if told["type"] in types}
    names = {
        str(every[key]["inputs"][part]): f"{where}.id"
        for key, where in known.items()
        for part in ("bucket", "name")
        if part in every[key]["inputs"] and every[key]["type"].endswith((":Bucket", ":Role"))
    }
    for key, where in known.items():
        inputs = every[key]["inputs"]
        own = {part: value for part, value in inputs.items() if part not in _LEFT_OUT}
        if tags := inputs.get("tagsAll"):
            own["tags"] = tags
        kind, label = where.split(".")
        written = _Terraform(known, {text: found for text, found in names.items() if not found.startswith(f"{where}.")})
        yield f'resource "{kind}" "{label}" {{\n{written.block(own)}}}\n'


class _Terraform:
    """Values as expressions. ``known`` are the resources to refer to, ``names`` texts that are another one's id."""

    def __init__(self, known: Mapping[str, str], names: Mapping[str, str]) -> None:
        self._known, self._names = known, names

    def block(self, inputs: Mapping[str, Any]) -> str:
        """The inside of a block."""
        lines = []
        for key, value in inputs.items():
            name = _SINGULAR.get(key, snake(key))
            parts = value if isinstance(value, list) else [value]
            if key in _JSON and not isinstance(value, str):
                lines.append(f"{name} = jsonencode({self.value(value)})")
            elif parts and key not in _MAPS and all(isinstance(part, Mapping) for part in parts):
                lines += [f"{name} {{\n{self.block(part)}}}" for part in parts]
            else:
                lines.append(f"{name} = {self.value(value)}")
        return "".join(f"{line}\n" for line in lines)

    def value(self, value: Any) -> str:
        """An expression."""
        match value:
            case str():
                return self._text(value)
            case Mapping():
                inside = ", ".join(f"{json.dumps(key)} = {self.value(item)}" for key, item in value.items())
                return f"{{{inside}}}"
            case list():
                return f"[{', '.join(self.value(item) for item in value)}]"
        return json.dumps(value)

    def _text(self, text: str) -> str:
        if text in self._names:
            return self._names[text]
        found = [*_REFERENCE.finditer(text)]
        if len(found) == 1 and found[0][0] == text and (where := self._place(found[0])):
            return where
        pieces, end = [], 0
        for one in found:
            pieces += [_plain(text[end : one.start()]), f"${{{where}}}" if (where := self._place(one)) else "UNKNOWN"]
            end = one.end()
        return f'"{"".join(pieces)}{_plain(text[end:])}"'

    def _place(self, reference: re.Match[str]) -> str | None:
        where = self._known.get(f"{reference[1]} {reference[2]}")
        return f"{where}.{snake((reference[3] or 'id').split('.')[0])}" if where else None


def _plain(text: str) -> str:
    return json.dumps(text)[1:-1].replace("${", "$${").replace("%{", "%%{")


def cloudformation(every: Resources) -> dict[str, Any]:
    """Every resource of aws-native as a template."""
    found = {
        re.sub(r"\W", "", key): {"Type": _cloudformation_type(told["type"]), "Properties": _pascal(told["inputs"])}
        for key, told in every.items()
        if told["type"].startswith("aws-native:")
    }
    return {"AWSTemplateFormatVersion": "2010-09-09", "Resources": found}


def _cloudformation_type(token: str) -> str:
    _, module, name = token.split(":")
    return f"AWS::{_MODULES[module]}::{name}"


def _pascal(value: Any) -> Any:
    match value:
        case Mapping():
            return {key[0].upper() + key[1:]: _pascal(item) for key, item in value.items()}
        case list():
            return [_pascal(item) for item in value]
    return value


def pods(manifest: Any) -> Iterator[dict[str, Any]]:
    """The pods that an object has templates of; one that already is of a kind with pods is not written twice."""
    if not isinstance(manifest, Mapping) or manifest.get("kind") in ("Job", "DaemonSet"):
        return
    about = manifest.get("metadata", {})
    for where, spec in _templates(manifest, ""):
        name = "-".join(filter(None, [about.get("name"), where]))
        labels = {"name": name.lower(), "namespace": about.get("namespace")}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": labels, "spec": spec}


def _templates(value: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    for key, part in value.items():
        if key == "template" and isinstance(part, Mapping) and "containers" in part.get("spec", {}):
            yield where, part["spec"]
        elif isinstance(part, Mapping):
            yield from _templates(part, where if key in ("spec", "template") else key)


def snake(name: str) -> str:
    """camelCase as snake_case: ``cidrIpv4`` is ``cidr_ipv4``."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda found: f"_{found[1]}", name).lower()


def _label(key: str) -> str:
    return re.sub(r"\W", "_", key)
