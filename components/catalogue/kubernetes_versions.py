"""The Kubernetes versions that EKS offers, and the add-on versions for each of them.

The facts are rows of ``kubernetes_versions.csv`` and ``eks_addons.csv``, each with its source and date. Versions are
pinned, so that two runs of one program create the same cluster; to upgrade, edit a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from .rows import Words, read, table

# The newest that SageMaker's documentation names among HyperPod's requirements.
DEFAULT_VERSION = "1.35"
# How long before support ends the program and the cost estimate warn.
WARNED_DAYS = 90


@dataclass(frozen=True, kw_only=True)
class KubernetesVersion:
    """One version. ``standard_support_until`` and ``extended_support_until``: the days on which it ends, UTC, which are
    without it already (EKS User Guide, "Kubernetes version lifecycle": extended support is billed from the beginning
    of the first, and on the second no cluster of the version can be created any more).

    ``hyperpod``: whether SageMaker's documentation names the version. EKS offers every version in the table.
    """

    version: str
    standard_support_until: date
    extended_support_until: date
    hyperpod: bool
    source: str

    def extended_support(self, on: date) -> bool:
        """Whether EKS charges for extended support on that day."""
        return self.standard_days_left(on) <= 0

    def standard_days_left(self, on: date) -> int:
        """Days until EKS charges for extended support; 0 on the first, negative after that."""
        return (self.standard_support_until - on).days

    def days_left(self, on: date) -> int:
        """Days until EKS refuses new clusters of this version and upgrades existing ones; 0 on the first such day."""
        return (self.extended_support_until - on).days


@dataclass(frozen=True, kw_only=True)
class AddonVersion:
    """One version of one add-on, and the Kubernetes versions it supports. None leaves the choice to EKS."""

    addon: str
    version: str | None = None
    kubernetes_versions: Words
    source: str


KUBERNETES_VERSIONS: Mapping[str, KubernetesVersion] = table(
    Path(__file__).with_name("kubernetes_versions.csv"), KubernetesVersion, "version"
)
ADDON_VERSIONS: tuple[AddonVersion, ...] = read(Path(__file__).with_name("eks_addons.csv"), AddonVersion)


def today() -> date:
    """Return today's date, which decides whether a version is supported."""
    return date.today()


def addon_version(addon: str, kubernetes: str) -> str | None:
    """Return the add-on's version for a Kubernetes version, None for EKS's default. Raises KeyError without a row."""
    for row in ADDON_VERSIONS:
        if row.addon == addon and kubernetes in row.kubernetes_versions:
            return row.version
    raise KeyError(f"no version of {addon} for Kubernetes {kubernetes} in eks_addons.csv")


def extended_support_notice(kubernetes: str) -> str:
    """Return a warning if the version costs extended support now or soon; otherwise an empty string."""
    version = KUBERNETES_VERSIONS[kubernetes]
    if version.standard_days_left(today()) >= WARNED_DAYS:
        return ""
    when = "is under extended support"
    if not version.extended_support(today()):
        when = f"will be under extended support from {version.standard_support_until} on"
    return f"Kubernetes {kubernetes} {when}, at six times the price of the control plane"
