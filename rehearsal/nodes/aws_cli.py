"""The ``aws`` command line on the embedded account: turns arguments into an API call and formats its response.

Any operation that botocore knows works. boto3 validates the request, and the host's role must allow it.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import jmespath
from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError

from ..account import Account
from .lustre import FileSystem
from .permissions import denied

_GLOBAL = {"region", "output", "query", "profile", "endpoint-url", "cli-read-timeout", "cli-connect-timeout", "color"}
_GLOBAL_FLAGS = {
    "no-cli-pager",
    "no-paginate",
    "debug",
    "no-verify-ssl",
    "no-sign-request",
    "only-show-errors",
    "quiet",
}


@dataclass(frozen=True)
class Caller:
    """Whose credentials a call has: the name of a role's session, a host's own where it is its group's role."""

    name: str
    role_arn: str


class UsageError(Exception):
    """The CLI does not understand the command line."""


class Cli:
    """``aws SERVICE OPERATION ...`` and ``aws s3 cp``."""

    def __init__(
        self,
        account: Account,
        file_systems: Callable[[], Sequence[FileSystem]],
        callers: MutableMapping[str, Caller],
    ) -> None:
        self._account, self._list_file_systems, self._callers = account, file_systems, callers

    def run(self, argv: list[str], uploads: Mapping[str, str], caller: Caller, now: float) -> dict[str, Any]:
        """The exit code, the output, and the files to write on the host."""
        answer: dict[str, Any] = {"rc": 0, "out": "", "err": "", "files": {}}
        try:
            words, options = _parse(argv)
            if words[:1] == ["--version"] or "version" in options:
                answer["out"] = "aws-cli/2.27.0 Python/3.13.2 Linux/6.8.0 exe/x86_64\n"
            elif words[:1] == ["s3"]:
                self._s3(words[1:], options, uploads, caller, answer)
            else:
                self._operation(words, options, uploads, caller, now, answer)
        except UsageError as error:
            answer |= {"rc": 252, "err": f"\naws: [ERROR]: {error}\n"}
        except ClientError as error:
            what, details = error.operation_name, error.response["Error"]
            text = f"An error occurred ({details['Code']}) when calling the {what} operation: {details['Message']}"
            answer |= {"rc": 1 if words[:1] == ["s3"] else 254, "err": f"\n{text}\n"}
        except (BotoCoreError, jmespath.exceptions.JMESPathError) as error:
            answer |= {"rc": 252, "err": f"\naws: [ERROR]: {error}\n"}
        return answer

    def _operation(
        self,
        words: list[str],
        options: Mapping[str, list[str]],
        uploads: Mapping[str, str],
        caller: Caller,
        now: float,
        answer: dict[str, Any],
    ) -> None:
        if len(words) < 2:
            raise UsageError("the following arguments are required: command, subcommand")
        service, command = words[0], words[1]
        try:
            client = self._account.client(service)
        except (BotoCoreError, ValueError) as error:
            raise UsageError(f"argument command: Invalid choice: '{service}'") from error
        names = {xform_name(name, "-"): name for name in client.meta.service_model.operation_names}
        if command not in names:
            raise UsageError(f"argument operation: Invalid choice: '{command}'")
        model = client.meta.service_model.operation_model(names[command])
        members = model.input_shape.members if model.input_shape else {}
        request = _request(members, options, uploads)
        self._authorise(service, names[command], request, caller)
        if service == "fsx" and command == "describe-file-systems":
            result = self._file_systems(request, now)
        else:
            result = getattr(client, xform_name(names[command]))(**request)
        if names[command] == "GetCallerIdentity":
            role = caller.role_arn.rsplit("/", 1)[-1]
            result["Arn"] = self._account.arn("sts", f"assumed-role/{role}/{caller.name}", region="")
        if names[command] == "AssumeRole":
            self._callers[result["Credentials"]["AccessKeyId"]] = Caller(request["RoleSessionName"], request["RoleArn"])
        result.pop("ResponseMetadata", None)
        answer["out"] = _printed(result, options)

    def _file_systems(self, request: Mapping[str, Any], now: float) -> dict[str, Any]:
        """File systems with a lifecycle state by the virtual clock, which moto's lack."""
        wanted = request.get("FileSystemIds")
        known = {one.id: one for one in self._list_file_systems()}
        for missing in [one for one in wanted or [] if one not in known]:
            details = {"Code": "FileSystemNotFound", "Message": f"File system '{missing}' does not exist."}
            raise ClientError({"Error": details}, "DescribeFileSystems")
        return {"FileSystems": [known[one].description(now) for one in wanted or known]}

    def _authorise(self, service: str, operation: str, request: Mapping[str, Any], caller: Caller) -> None:
        if text := denied(self._account, caller.role_arn, service, operation, request):
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": text}}, operation)

    def _s3(
        self,
        words: list[str],
        options: Mapping[str, list[str]],
        uploads: Mapping[str, str],
        caller: Caller,
        answer: dict[str, Any],
    ) -> None:
        verb, places = ([*words, ""])[0], words[1:]
        if verb not in ("cp", "sync", "ls") or not places:
            raise UsageError(f"aws s3 {verb}: not rehearsed")
        if verb == "ls":
            for key, size in self._keys(places[0], caller):
                answer["out"] += f"2026-01-01 00:00:00 {size:>10} {key}\n"
            return
        source, target = places[0], places[1]
        whole = verb == "sync" or "recursive" in options
        if source.startswith("s3://"):
            self._download(source, target, whole, caller, answer)
        else:
            self._upload(source, target, whole, uploads, caller)

    def _download(self, source: str, target: str, whole: bool, caller: Caller, answer: dict[str, Any]) -> None:
        bucket, key = _bucket_and_key(source)
        keys = [name for name, _ in self._keys(source, caller)] if whole else [key]
        for name in keys:
            self._authorise("s3", "GetObject", {"Bucket": bucket, "Key": name}, caller)
            content = self._account.client("s3").get_object(Bucket=bucket, Key=name)["Body"].read()
            below = name[len(key) :].lstrip("/") if whole else PurePosixPath(name).name
            path = target
            if target != "-" and (whole or target.endswith("/") or target == "."):
                path = f"{target.rstrip('/')}/{below}"
            answer["files"][path] = base64.b64encode(content).decode()

    def _upload(self, source: str, target: str, whole: bool, uploads: Mapping[str, str], caller: Caller) -> None:
        bucket, key = _bucket_and_key(target)
        if not uploads:
            raise UsageError(f"The user-provided path {source} does not exist.")
        for path, content in uploads.items():
            name = f"{key.rstrip('/')}/{path[len(source) :].lstrip('/')}" if whole else key
            if not whole and (not key or key.endswith("/")):
                name = key + PurePosixPath(path).name
            self._authorise("s3", "PutObject", {"Bucket": bucket, "Key": name}, caller)
            self._account.client("s3").put_object(Bucket=bucket, Key=name, Body=base64.b64decode(content))

    def _keys(self, place: str, caller: Caller) -> list[tuple[str, int]]:
        bucket, prefix = _bucket_and_key(place)
        self._authorise("s3", "ListObjectsV2", {"Bucket": bucket}, caller)
        pages = self._account.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [(entry["Key"], entry["Size"]) for page in pages for entry in page.get("Contents", [])]


def _bucket_and_key(place: str) -> tuple[str, str]:
    bucket, _, key = place.removeprefix("s3://").partition("/")
    return bucket, key


def _parse(argv: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """The positional words, and every option with its values."""
    words: list[str] = []
    options: dict[str, list[str]] = {}
    open_option = ""
    for word in argv:
        if word.startswith("--"):
            name, separator, value = word[2:].partition("=")
            options[name] = [value] if separator else []
            open_option = "" if separator or name in _GLOBAL_FLAGS or name in ("recursive", "version") else name
        elif open_option:
            options[open_option].append(word)
            if open_option in _GLOBAL:
                open_option = ""
        else:
            words.append(word)
    return words, options


def _request(
    members: Mapping[str, Any], options: Mapping[str, list[str]], uploads: Mapping[str, str]
) -> dict[str, Any]:
    names = {xform_name(name, "-"): name for name in members}
    request: dict[str, Any] = {}
    for option, values in options.items():
        if option in _GLOBAL or option in _GLOBAL_FLAGS or option in ("max-items", "page-size"):
            continue
        plain = option.removeprefix("no-")
        if option not in names and plain not in names:
            raise UsageError(f"Unknown options: --{option}")
        values = [base64.b64decode(uploads[value]).decode() if value in uploads else value for value in values]
        shape = members[names.get(option, names.get(plain, ""))]
        if shape.type_name == "boolean" and not values:
            request[names.get(option) or names[plain]] = option in names
        else:
            request[names[option]] = _value(shape, values)
    return request


def _value(shape: Any, values: list[str]) -> Any:
    """A parameter in any of the CLI's notations: plain, JSON, or shorthand such as ``Name=x,Values=a,b``."""
    text = " ".join(values)
    if shape.type_name in ("structure", "list", "map") and text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError as error:
            raise UsageError(f"Invalid JSON: {error}") from error
    if shape.type_name == "list":
        return [_value(shape.member, [value]) for value in values]
    if shape.type_name == "map":
        return dict(part.split("=", 1) for part in text.split(","))
    if shape.type_name == "structure":
        return _shorthand(shape, text)
    if shape.type_name in ("integer", "long"):
        return int(text)
    if shape.type_name == "boolean":
        return text == "true"
    return text


def _shorthand(shape: Any, text: str) -> dict[str, Any]:
    found: dict[str, list[str]] = {}
    key = ""
    for part in re.split(r",(?![^\[]*\])", text):
        name, separator, value = part.partition("=")
        if separator and name in shape.members:
            key, found[name] = name, [value]
        elif key:
            found[key].append(part)
        else:
            raise UsageError(f"Error parsing parameter: {text}")
    result: dict[str, Any] = {}
    for name, values in found.items():
        member = shape.members[name]
        result[name] = _value(member, values if member.type_name == "list" else [",".join(values)])
    return result


def _printed(result: Mapping[str, Any], options: Mapping[str, list[str]]) -> str:
    value: Any = json.loads(json.dumps(result, default=str))
    if options.get("query"):
        value = jmespath.search(options["query"][0], value)
    if options.get("output", ["json"]) == ["text"]:
        return _as_text(value)
    return "" if value is None or value == {} else json.dumps(value, indent=4) + "\n"


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        if all(not isinstance(item, (list, dict)) for item in value):
            return "\t".join(_plain(item) for item in value) + "\n" if value else ""
        return "".join(_as_text(item) for item in value)
    if isinstance(value, dict):
        row = [_plain(item) for item in value.values() if not isinstance(item, (list, dict))]
        nested = "".join(_as_text(item) for item in value.values() if isinstance(item, (list, dict)))
        return ("\t".join(row) + "\n" if row else "") + nested
    return _plain(value) + "\n"


def _plain(value: Any) -> str:
    return "None" if value is None else str(value)
