"""How a verb ends: the exit codes, the exception that carries them, and the translation of libraries' errors."""

import errno
import re
import sys
from enum import IntEnum
from importlib.util import find_spec

from botocore import exceptions as aws_errors
from botocore.parsers import ResponseParserError
from pulumi import automation

from components.config import BY_OPTION, ConfigError

from ..engine.pulumi_cli import last_words
from ..project.stack_file import ProjectError
from . import advice


class Exit(IntEnum):
    """Exit codes of every verb. ``hyperpod --help`` quotes them."""

    GOOD = 0
    FAILED = 1  # the operation failed, or the check found something wrong
    BAD_INPUT = 2  # the command line, the configuration, or a stack, node or group that does not exist
    CANNOT_KNOW = 3  # undetermined: missing credentials, permissions, network or tools
    CANCELLED = 130  # Ctrl-C, as shells have it


class Failure(Exception):
    """A verb cannot go on. ``hint`` is the next step to take; STACK in it stands for the stack's name.

    ``name`` is that of the failure in known/, where the message alone does not tell. Without a hint the next step is
    what stands there.
    """

    def __init__(self, message: str, hint: str = "", code: Exit = Exit.FAILED, name: str = "") -> None:
        super().__init__(message)
        self.message, self.code, self.name = message, code, name
        self.hint = hint or (advice.named(name).step.format(stack="STACK") if name else "")

    @property
    def known(self) -> advice.Advice:
        """What the project knows about it."""
        if self.name:
            return advice.named(self.name)
        found = advice.matching(self.message) if self.code == Exit.FAILED else None
        return found or advice.named(_OTHERS.get(self.code, "failed"))

    def as_json(self) -> dict[str, object]:
        """The documented form of --json."""
        return {"error": self.message, "code": self.known.code, "hint": self.hint, "exit_code": int(self.code)}


# What a failure is called that has no name of its own. People name things that do not exist in any words.
_OTHERS = {Exit.BAD_INPUT: "input", Exit.CANNOT_KNOW: "undetermined"}


def bad_input(message: str, hint: str = "", name: str = "") -> Failure:
    """The user's input is wrong."""
    return Failure(message, hint, Exit.BAD_INPUT, name)


def cannot_know(message: str, hint: str = "", name: str = "") -> Failure:
    """Something that the answer needs is missing or unreachable."""
    return Failure(message, hint, Exit.CANNOT_KNOW, name)


NO_CREDENTIALS = (
    aws_errors.NoCredentialsError,
    aws_errors.PartialCredentialsError,
    aws_errors.CredentialRetrievalError,
    aws_errors.ProfileNotFound,
    aws_errors.TokenRetrievalError,
    aws_errors.UnauthorizedSSOTokenError,
    aws_errors.SSOTokenLoadError,
)
_INSTALL = "`make rehearse` installs what every verb needs, or: pip install -r rehearsal/requirements.txt"
_IN_OPTIONS = "correct the option; `hyperpod explain KEY` says what a key takes"
_LOG_IN = "log in (`aws sso login`, or AWS_PROFILE, or AWS_ACCESS_KEY_ID), then `aws sts get-caller-identity`"
# Codes of different services for the same thing (each service's API reference, common errors).
DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError", "Forbidden"}
)
_STALE = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "AuthFailure",
        "RequestExpired",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
    }
)
THROTTLED = frozenset(
    {"Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException", "SlowDown"}
)
MISSING = frozenset(
    {
        "ResourceNotFound",
        "ResourceNotFoundException",
        "NoSuchEntity",
        "NoSuchBucket",
        "ParameterNotFound",
        "NotFoundException",
        "FileSystemNotFound",
        "NoSuchResourceException",
        "RepositoryNotFoundException",
        "LoadBalancerNotFound",
        "TargetGroupNotFound",
    }
)
# What a disk, a folder's rights or a file's kind refuse; a file that the project lacks is a defect.
_OF_THE_MACHINE = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
        errno.EISDIR,
        errno.EMFILE,
        errno.ENOSPC,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)
_PAGE = re.compile(r"<(!doctype\s+)?html", re.IGNORECASE)
_REGION_OFF = frozenset({"OptInRequired", "InvalidRegion"})


# What the Go SDK and S3 say through Pulumi (AWS SDK for Go, credentials; Amazon S3 API Reference, error responses).
_NO_BACKEND_CREDENTIALS = (
    r"IMDS|NoCredential|no valid credential|get credentials|failed to refresh cached credentials|\bExpiredToken|"
    r"\bInvalidAccessKeyId\b|\bInvalidClientTokenId\b|\bAccessDenied|\bNoSuchBucket\b"
)


def code_of(error: aws_errors.ClientError) -> str:
    """AWS's code of an error."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_missing(error: aws_errors.ClientError) -> bool:
    """Whether AWS says that the resource does not exist."""
    code, message = code_of(error), str(error)
    return (
        code in MISSING
        or code.endswith(".NotFound")
        or ("not found" in message.lower() and code == "ValidationException")
    )


def reason(error: aws_errors.ClientError | aws_errors.BotoCoreError) -> str:
    """Why something could not be asked, in a few words, for callers that continue without the answer."""
    if isinstance(error, aws_errors.BotoCoreError):
        return str(error)
    code = code_of(error)
    what = "permission denied" if code in DENIED else "throttled by AWS" if code in THROTTLED else code
    return f"{what}: {error.operation_name}"


def explain(error: BaseException, stack: str = "STACK") -> Failure | None:
    """A library's error as a Failure; None if it is a defect of this project."""
    failure = _failure(error)
    if failure is not None:
        failure.hint = failure.hint.replace("STACK", stack)
    return failure


def described(error: BaseException, stack: str) -> Failure:
    """The failure that an error comes to, in its own words where none is known."""
    return explain(error, stack) or Failure(str(error))


def _failure(error: BaseException) -> Failure | None:
    match error:
        case Failure():
            return error
        case ProjectError():
            return bad_input(str(error), error.hint, error.name)
        case ConfigError():
            alone = all(one.where == BY_OPTION for one in error.problems)
            return bad_input(str(error), _IN_OPTIONS if alone else "", name="configuration")
        case aws_errors.ClientError():
            return _client_error(error)
        case _ if isinstance(error, NO_CREDENTIALS):
            return cannot_know(f"no usable AWS credentials: {error}", _LOG_IN, name="credentials")
        case aws_errors.NoRegionError():
            return bad_input("no region is set", "set aws:region in the stack's configuration", name="configuration")
        case aws_errors.EndpointConnectionError() | aws_errors.ConnectionError() | aws_errors.HTTPClientError():
            return cannot_know(f"AWS cannot be reached: {error}", name="unreachable")
        case ResponseParserError():
            return _no_answer(str(error))
        case aws_errors.BotoCoreError():
            return Failure(f"AWS: {error}")
        case automation.InvalidVersionError():
            return cannot_know(f"the Pulumi CLI does not fit: {error}", name="pulumi-cli")
        case automation.CommandError():
            return _command_error(error)
        case ModuleNotFoundError(name=str(name)) if find_spec(name.partition(".")[0]) is None:
            return cannot_know(f"{name} is missing in {sys.executable}", _INSTALL)
        case OSError() if error.errno in _OF_THE_MACHINE:
            return Failure(f"{error.filename or 'cannot write'}: {error.strerror}", name="file")
    return None


def _client_error(error: aws_errors.ClientError) -> Failure:
    code, said = code_of(error), error.response.get("Error", {}).get("Message", "")
    what = f"{error.operation_name}: {said or code}"
    if _PAGE.search(said):
        return _no_answer(said)
    if code in DENIED:
        return cannot_know(
            f"permission denied: {what}",
            f"allow this principal {_action(error)}, or use another profile",
            name="permissions",
        )
    if code in _STALE:
        return cannot_know(f"AWS does not accept the credentials: {what}", _LOG_IN, name="credentials")
    if code in THROTTLED:
        return cannot_know(f"AWS throttles this account: {what}", "wait a minute and run it again", name="throttling")
    if code == "TargetNotConnected":
        return cannot_know(f"Session Manager does not reach the node: {said or code}", name="not-connected")
    if code == "NotRehearsed":
        # A served rehearsal's sentence, which names the one that has what was asked for.
        return cannot_know(said)
    if code in _REGION_OFF:
        return bad_input(f"the region is not enabled in this account: {what}", name="region-off")
    if is_missing(error):
        return bad_input(f"not found: {what}", name="not-found")
    return Failure(f"AWS refused: {what} ({code})")


def _no_answer(page: str) -> Failure:
    """Somebody else than AWS has answered; of a page its heading says enough."""
    # botocore shows what it could not parse as Python writes bytes down.
    heading = re.search(r"<(title|h1)[^>]*>([^<]{1,80})", page.replace(r"\n", "\n"), re.IGNORECASE)
    return cannot_know(
        "something other than AWS answered" + (f': "{heading.group(2).strip()}"' if heading else ""),
        name="proxy",
    )


def _action(error: aws_errors.ClientError) -> str:
    named = re.search(r"not authorized to perform:? ([\w-]+:\w+)", str(error))
    return named.group(1) if named else error.operation_name


def _command_error(error: automation.CommandError) -> Failure:
    text = str(error)
    if isinstance(error, automation.StackNotFoundError):
        return bad_input("the stack has never been deployed from this backend", name="never-deployed")
    if isinstance(error, automation.ConcurrentUpdateError):
        return Failure("another update of this stack is running, or was killed", name="locked")
    if re.search(r"PULUMI_ACCESS_TOKEN|not logged in|must be set for login", text):
        return cannot_know("Pulumi has no backend for its state", name="backend")
    if "PULUMI_CONFIG_PASSPHRASE" in text or "incorrect passphrase" in text:
        return cannot_know("the stack's secrets cannot be read", name="passphrase")
    if re.search(_NO_BACKEND_CREDENTIALS, text):
        return cannot_know(
            f"Pulumi's backend refuses this principal: {last_words(text)}",
            f"{_LOG_IN}; `pulumi whoami -v` names the backend",
            name="backend",
        )
    if re.search(r"dial tcp|no such host|connection refused|i/o timeout", text):
        what = f"Pulumi cannot reach its backend or plugins: {last_words(text)}"
        return cannot_know(what, "check the network, and `pulumi whoami`", name="unreachable")
    return Failure(f"pulumi: {last_words(text)}")
