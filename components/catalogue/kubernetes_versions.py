"""The Kubernetes versions that EKS offers, and the add-on versions for each of them.

The facts are rows of ``kubernetes_versions.csv`` and ``eks_addons.csv``, each with its source and date. Versions are
pinned, so that two runs of one program create the same cluster; to upgrade, edit a row.
"""

from __future__ import annotations

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
    """One version. ``standard_support_until`` and ``extended_support_until``: last days, None where unknown.

    ``hyperpod``: whether SageMaker's documentation names the version. EKS offers every version in the table.
    """

    version: str
    standard_support_until: date | None = None
    extended_support_until: date | None = None
    hyperpod: bool
    source: str

    def extended_support(self, on: date) -> bool:
        """Whether EKS charges for extended support on that day."""
        return self.standard_support_until is not None and on > self.standard_support_until

    def standard_days_left(self, on: date) -> int | None:
        """Days until EKS charges for extended support; negative after that."""
        return (self.standard_support_until - on).days if self.standard_support_until else None

    def days_left(self, on: date) -> int | None:
        """Days until EKS refuses new clusters of this version and upgrades existing ones; negative after that."""
        return (self.extended_support_until - on).days if self.extended_support_until else None


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
    """Today, which decides whether a version is supported."""
    return date.today()


def addon_version(addon: str, kubernetes: str) -> str | None:
    """The add-on's version for a Kubernetes version, None for EKS's default. Raises KeyError without a row."""
    for row in ADDON_VERSIONS:
        if row.addon == addon and kubernetes in row.kubernetes_versions:
            return row.version
    raise KeyError(f"no version of {addon} for Kubernetes {kubernetes} in eks_addons.csv")


def extended_support_notice(kubernetes: str) -> str:
    """A warning that the version costs extended support, or soon will; otherwise empty."""
    version = KUBERNETES_VERSIONS[kubernetes]
    days = version.standard_days_left(today())
    if days is None or days >= WARNED_DAYS:
        return ""
    when = "is under extended support"
    if days >= 0:
        when = f"will be under extended support after {version.standard_support_until}"
    return f"Kubernetes {kubernetes} {when}, at six times the price of the control plane"
