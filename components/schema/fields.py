"""Building blocks of the model's fields: lenient models, the effect of a change, strings that must match a pattern."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, get_args

from annotated_types import Ge, Le
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo


class _Lenient:
    """The type of ``LENIENT``."""


# The context of a validation that replaces invalid values with defaults.
LENIENT = _Lenient()


class Model(BaseModel):
    """A part of the configuration: immutable, with camel-case keys; unknown keys are errors.

    Validated with the context LENIENT, it accepts anything: an invalid key counts as not set, and a missing required
    key is an empty string.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, use_attribute_docstrings=True)

    @classmethod
    def keys(cls) -> dict[str, FieldInfo]:
        """The fields, by their names in the configuration."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}

    @model_validator(mode="before")
    @classmethod
    def _only_what_belongs(cls, value: Any, info: ValidationInfo) -> Any:
        if info.context is not LENIENT or not isinstance(value, dict):
            return value
        keys = cls.keys()
        missing = {key: "" for key, field in keys.items() if field.is_required()}
        return missing | {key: value[key] for key in value if key in keys}

    @field_validator("*", mode="wrap")
    @classmethod
    def _default_for_what_is_wrong(
        cls, value: Any, validated: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        try:
            return validated(value)
        except ValidationError as refused:
            if info.context is not LENIENT:
                raise
            if isinstance(value, dict):
                wrong = {error["loc"][0] for error in refused.errors() if error["loc"]}
                if good := {key: one for key, one in value.items() if key not in wrong}:
                    return validated(good)
            field = cls.model_fields[str(info.field_name)]
            return "" if field.is_required() else field.get_default(call_default_factory=True)


def models(annotation: Any) -> Iterator[type[Model]]:
    """Return the models that a field's type contains."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for argument in get_args(annotation):
        yield from models(argument)


def limits(metadata: Sequence[Any]) -> str:
    """Return the range of a number, in words; empty if it has no limits."""
    least: Any = next((one.ge for one in metadata if isinstance(one, Ge)), None)
    most: Any = next((one.le for one in metadata if isinstance(one, Le)), None)
    if least is None:
        return ""
    if most is None:
        return f"{least} or more"
    return f"{least} or {most}" if most == least + 1 else f"{least} to {most}"


@dataclass(frozen=True)
class Change:
    """The effect of a key's change on a deployed stack.

    in place: resources are updated, created or deleted; the cluster and the file system stay. at boot: only files that
    nodes read when they boot change. in part: some values are refused. refused: every change is refused.
    """

    kind: Literal["in place", "at boot", "in part", "refused"]
    words: str = ""

    def __str__(self) -> str:
        return self.words or self.kind


def _empty_is_none(value: object) -> object:
    """Treat an empty value as "not set": Pulumi requires a default for an optional key."""
    return None if value in ("", {}) else value


NONE_IF_EMPTY = BeforeValidator(_empty_is_none)
IN_PLACE = Change("in place")
AT_BOOT = Change(
    "at boot", "in place, for nodes that boot afterwards; on Slurm for others by `hyperpod node run-scripts`"
)
REFUSED = Change("refused")


@dataclass(frozen=True, kw_only=True)
class Form:
    """The error message for a string that does not match a pattern: the mistake, and a correct value."""

    what: str
    fix: str


# By pattern, which pydantic reports for a string that does not match.
FORMS: dict[str, Form] = {}


def form(pattern: str, what: str, fix: str) -> Any:
    """Return a constraint on a string: all of it must match the pattern."""
    whole = f"^(?:{pattern})$"
    FORMS[whole] = Form(what=what, fix=fix)
    return Field(pattern=whole)


RoleArn: TypeAlias = Annotated[
    str,
    form(
        r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]+",
        "is not a role's ARN",
        "arn:aws:iam::ACCOUNT:role/NAME",
    ),
]

# IAM User Guide, "Permissions boundaries for IAM entities": a managed policy, AWS's or the account's.
BoundaryArn: TypeAlias = Annotated[
    str,
    form(
        r"arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/[A-Za-z0-9_+=,.@/-]+",
        "is not a managed policy's ARN",
        "arn:aws:iam::ACCOUNT:policy/NAME",
    ),
]

# The ARNs with which bucket policies can compare aws:PrincipalArn.
WriterArn: TypeAlias = Annotated[
    str,
    form(
        r"arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/[A-Za-z0-9_+=,.@/*?-]+",
        "is not the ARN of an IAM role or user",
        "arn:aws:iam::ACCOUNT:role/NAME, with * for any characters",
    ),
]


# AWS KMS API Reference, DescribeKey, KeyId. Aliases could come to mean another key.
KmsKey: TypeAlias = Annotated[
    str,
    form(
        "create|arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+",
        "is not a key's ARN",
        "create, or arn:aws:kms:REGION:ACCOUNT:key/ID",
    ),
]
# AWS Organizations API Reference, Organization, Id; an account's id has twelve digits.
TrustedOwner: TypeAlias = Annotated[
    str,
    form(
        "[0-9]{12}|o-[a-z0-9]{10,32}",
        "is not an account or organization",
        "123456789012 in quotes, or o-exampleorgid",
    ),
]


def _id(prefix: str) -> Any:
    return form(f"{prefix}-[0-9a-f]{{8,17}}", "is not an id", f"{prefix}-0123456789abcdef0")


VpcId: TypeAlias = Annotated[str, _id("vpc")]
SubnetId: TypeAlias = Annotated[str, _id("subnet")]
SecurityGroupId: TypeAlias = Annotated[str, _id("sg")]
AmiId: TypeAlias = Annotated[str, _id("ami")]
# SageMaker API Reference, ClusterInstanceGroupSpecification, InstanceGroupName.
GroupName: TypeAlias = Annotated[
    str,
    form("[a-zA-Z0-9](-*[a-zA-Z0-9])*", "cannot name a worker group", "letters, digits and inner hyphens"),
]
ClusterName: TypeAlias = Annotated[
    str,
    form(
        "[a-z0-9](-?[a-z0-9])*",
        "is not a valid name",
        "lower-case letters, digits and single hyphens, with a letter or digit at both ends",
    ),
]
# SageMaker API Reference, ClusterInstanceGroupSpecification, ImageReleaseVersion.
ImageRelease: TypeAlias = Annotated[
    str, form(r"\d{1,4}\.\d{1,4}\.\d{1,4}", "is not a release", "MAJOR.MINOR.PATCH, as 2.1.0")
]
PlanArn: TypeAlias = Annotated[
    str,
    form(
        "arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:[0-9]{12}:training-plan/[A-Za-z0-9_-]+",
        "is not a training plan's ARN",
        "arn:aws:sagemaker:REGION:ACCOUNT:training-plan/NAME",
    ),
]
# Kubernetes, "Object Names and IDs": RFC 1123 labels.
Namespace: TypeAlias = Annotated[
    str,
    form(
        "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
        "cannot name a namespace",
        "lower-case letters, digits and inner hyphens, at most 63",
    ),
]
# Karpenter, NodePool, spec.disruption: consolidateAfter and a budget's nodes.
IdleTime: TypeAlias = Annotated[
    str,
    form("([0-9]+[smh])+|Never", "is not a time", "as 10m, 1h30m, or Never"),
]
NodeShare: TypeAlias = Annotated[
    str, form("(100|[0-9]{1,2})%|[0-9]+", "is not a number of nodes", "a number or a share in quotes, as 2 or 10%")
]
BucketName: TypeAlias = Annotated[
    str, form("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "is not a bucket name", "only the name, without s3://")
]
BucketPrefix: TypeAlias = Annotated[
    str, form("|([^/*?]+/)+", "is not a folder of a bucket", "folders, each with a slash after it, such as tokens/v2/")
]
FileSystemId: TypeAlias = Annotated[
    str,
    form(
        "fs-[0-9a-f]{8,21}",
        "is not a file system's id",
        "the id of an FSx file system that the nodes can reach, like fs-0123456789abcdef0",
    ),
]
ImageRegistry: TypeAlias = Annotated[
    str,
    form(
        r"[0-9]{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?(/[a-z0-9._/-]+)?",
        "is not a private ECR registry",
        "ACCOUNT.dkr.ecr.REGION.amazonaws.com/PREFIX",
    ),
]
SshPublicKey: TypeAlias = Annotated[
    str,
    form(
        r"(ssh-(ed25519|rsa)|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]{40,}={0,3}( [^\n]*)?\n?",
        "is not an OpenSSH public key",
        'one line like "ssh-ed25519 AAAA... name"',
    ),
]
