"""What the API references of AWS's services, which come with botocore, say of their error codes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from botocore import xform_name
from botocore.loaders import Loader

from components.common.documents import load

_STEPS = Path(__file__).parent / "unknown" / "aws_steps.yaml"
# Services that stacks, nodes and their users call. Of others an error is read without their reference.
SERVICES = (
    "sagemaker", "eks", "fsx", "ssm", "iam", "kms", "ecr", "sts", "s3", "efs", "autoscaling", "elbv2", "logs",
    "cloudwatch", "cloudformation", "cloudcontrol", "service-quotas", "organizations", "ram", "batch", "events", "sns",
    "sqs", "amp", "grafana", "secretsmanager", "rds", "route53", "sso-oidc", "eks-auth", "pcs", "ecs", "lambda",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A code of a service, with what its reference says and what to do about a code of this form."""

    code: str
    service: str
    means: str
    step: str


@dataclass(frozen=True, kw_only=True)
class _Service:
    """What AWS's reference of a service has: its errors and its calls."""

    name: str
    title: str
    errors: Mapping[str, str]
    calls: frozenset[str]


@cache
def _service(name: str) -> _Service:
    model: Mapping[str, Any] = Loader().load_service_model(name, "service-2")
    errors = dict[str, str]()
    for shape, one in model["shapes"].items():
        if one.get("exception"):
            errors[one.get("error", {}).get("code", shape)] = one.get("documentation", "")
        # Codes of what went wrong later, such as those of an EKS node group's health, stand in a field's description.
        for member, kind in one.get("members", {}).items():
            if member.lower() in ("code", "errorcode"):
                errors |= dict(re.findall(r"(?s)<b>(\w+)</b>:? ?(.*?)</li>", kind.get("documentation", "")))
    meta = model["metadata"]
    return _Service(
        name=name,
        title=meta.get("serviceAbbreviation", meta["serviceFullName"]),
        errors={code: means for code, means in errors.items() if means},
        calls=frozenset(model["operations"]),
    )


# What only AWS's tools write. Loading every service for any name in any text would take a second.
_FROM_AWS = r"An error occurred \(|api error|operation error|\bService: |\baws\b|amazonaws|RequestI[dD]|^\w+$"

# Codes of all services, of which no reference says more than the name does.
_COMMON = (
    r"(?:Validation|Invalid(?:Parameter|Request|Input)\w*|BadRequest|AccessDenied|Throttling|TooManyRequests|"
    r"(?:Resource)?(?:NotFound|InUse|AlreadyExists)|(?:Resource|Service)?(?:Limit|Quota)Exceeded|Conflict|Internal\w*|"
    r"Service\w{0,11}|Server|Client|UnsupportedOperation|NotAuthorized|InvalidFormat|InvalidOperation|Tag)"
    r"(?:Exception|Error|Fault|Failure)?"
)


def find(name: str, text: str) -> Explained | None:
    """A code in a text, in the words of the API reference of the service whose it is; None if no service has it."""
    if not re.fullmatch(r"[A-Z]\w*[a-z][A-Z]\w*", name) or re.fullmatch(_COMMON, name):
        return None
    stem = re.sub(r"(?:Exception|Fault|Error)$", "", name)
    called = re.search(r"calling the (\w+) operation|operation error [\w ]+: (\w+)", text)
    call = (called.group(1) or called.group(2)) if called else ""
    meant = [_service(one) for one in SERVICES if re.search(rf"(?i)(?<![\w-])(?:Amazon|AWS)?{one}(?![\w-])", text)]
    others = map(_service, SERVICES) if re.search(_FROM_AWS, text) else ()
    owners = [one for one in others if {name, stem, f"{stem}Exception"} & one.errors.keys()]
    # A name that several services have means something else in each.
    owners = [one for one in owners if call in one.calls] or owners if len(owners) == 1 or call else []
    for service in (*meant, *owners[:1]):
        if code := next((code for code in (name, stem, f"{stem}Exception") if code in service.errors), ""):
            means = f'{service.title}\'s API reference says of {code}: "{_plain(service.errors[code])}"'
            return Explained(code=code, service=service.title, means=means, step=_step(service, code, call))
    return None


def _plain(html: str) -> str:
    """A description's first sentences, without its markup."""
    text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    return text if len(text) <= _LONG else f"{text[:_LONG].rpartition('. ')[0] or text[:_LONG]}."


_LONG = 300


def _step(service: _Service, code: str, call: str) -> str:
    """What to do about a code of AWS of this form, with the command that shows the things it is about."""
    thing = re.sub(r"Invalid|Exception|Fault|Already|Exists?|NotFound|DoesNot|InUse|Limit|Exceeded|Quota|Id$", "", code)
    shows = (f"{verb}{thing}{end}" for verb in ("List", "Describe", "Get") for end in ("s", ""))
    command = next((_command(service, one) for one in shows if thing and one in service.calls), "")
    step = next((step for form, step in _steps().items() if re.search(form, code)), "")
    return step.replace("{list}", command or "the service's list or describe call").replace(
        "{call}", _command(service, call) if call in service.calls else "the call"
    ).replace("{service}", service.name)  # fmt: skip


def _command(service: _Service, call: str) -> str:
    return f"`aws {service.name} {xform_name(call, '-')}`"


@cache
def _steps() -> Mapping[str, str]:
    steps: Mapping[str, str] = load(_STEPS.read_text())
    return steps
