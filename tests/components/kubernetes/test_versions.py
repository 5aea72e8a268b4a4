"""The tables of Kubernetes versions and add-ons agree with each other."""

import re
from datetime import date
from unittest.mock import patch

import pytest

from components.catalogue.kubernetes_versions import (
    ADDON_VERSIONS,
    DEFAULT_VERSION,
    KUBERNETES_VERSIONS,
    WARNED_DAYS,
    addon_version,
    extended_support_notice,
)
from components.estimates.cost import estimate
from components.kubernetes import metrics_addon
from components.kubernetes.addons import NODE_ADDONS, POD_ADDONS, TASK_GOVERNANCE, TRAINING_OPERATOR
from rehearsal.account import Account
from rehearsal.engines.deployment import up
from tests.components.config import refusals
from tests.components.config.refusals import EKS
from tests.support import config, few_files, project


def test_the_default_is_a_version_that_hyperpod_documents() -> None:
    assert KUBERNETES_VERSIONS[DEFAULT_VERSION].hyperpod


def test_versions_are_in_order_without_a_gap() -> None:
    minors = [int(version.split(".")[1]) for version in KUBERNETES_VERSIONS]
    assert minors == list(range(31, 31 + len(minors)))


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_every_version_has_exactly_one_version_of_every_addon(version: str) -> None:
    for addon in (*NODE_ADDONS, *POD_ADDONS, TRAINING_OPERATOR, TASK_GOVERNANCE, metrics_addon.ADDON):
        rows = [row for row in ADDON_VERSIONS if row.addon == addon and version in row.kubernetes_versions]
        assert len(rows) == 1, f"{addon} has {len(rows)} rows for {version}"
        assert rows[0].source


def test_the_default_is_under_standard_support_for_months() -> None:
    until = KUBERNETES_VERSIONS[DEFAULT_VERSION].standard_support_until
    # The tables' newest row was looked up on this day.
    assert (until - date(2026, 11, 22)).days > WARNED_DAYS


@pytest.mark.parametrize(
    ("day", "notice"),
    [
        (date(2026, 9, 3), ""),
        (date(2026, 9, 4), "Kubernetes 1.34 will be under extended support from 2026-12-02 on"),
        (date(2026, 12, 1), "Kubernetes 1.34 will be under extended support from 2026-12-02 on"),
        (date(2026, 12, 2), "Kubernetes 1.34 is under extended support"),
    ],
)
def test_extended_support_is_announced_before_it_costs(day: date, notice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.catalogue.kubernetes_versions.today", lambda: day)
    assert extended_support_notice("1.34").startswith(notice)
    assert bool(extended_support_notice("1.34")) == bool(notice)
    notes = estimate(config("eks-gpu", kubernetesVersion="1.34")).notes
    assert [note for note in notes if "extended support" in note] == ([extended_support_notice("1.34")] * bool(notice))
    assert extended_support_notice("1.36") == ""


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_kube_proxy_is_of_the_clusters_own_minor_version(version: str) -> None:
    assert str(addon_version("kube-proxy", version)).startswith(f"v{version}.")


def test_addon_versions_look_as_eks_writes_them() -> None:
    for row in ADDON_VERSIONS:
        assert row.version is None or re.fullmatch(r"v\d+\.\d+\.\d+-eksbuild\.\d+", row.version), row


def test_an_addon_that_a_version_lacks_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(KeyError, match=r"Kubernetes 1\.30"):
        addon_version("coredns", "1.30")


def test_extended_support_costs_from_the_day_on_that_standard_support_ends() -> None:
    # EKS User Guide, "Kubernetes version lifecycle": billed from the beginning of that day.
    version = KUBERNETES_VERSIONS["1.34"]
    assert not version.extended_support(date(2026, 12, 1))
    assert version.extended_support(date(2026, 12, 2))
    assert KUBERNETES_VERSIONS["1.36"].extended_support(date(2027, 8, 2))


def test_extended_support_ends_a_year_after_standard_support() -> None:
    for version in KUBERNETES_VERSIONS.values():
        standard = version.standard_support_until
        assert version.extended_support_until == standard.replace(year=standard.year + 1)


BAD: dict[str, tuple[date, str]] = {
    # EKS User Guide, "Kubernetes version lifecycle": no new cluster "on the end of extended support date".
    "the day that support ends": (date(2027, 3, 23), "1.32"),
    "a version that EKS has no more": (date(2027, 3, 23), "1.30"),
}


def told(chosen: tuple[date, str]) -> list[str]:
    """What is said of that version on that day."""
    day, version = chosen
    with patch("components.catalogue.kubernetes_versions.today", lambda: day):
        return refusals.told({**EKS, "kubernetesVersion": version})


def test_a_version_is_taken_until_the_day_before() -> None:
    assert told((date(2027, 3, 22), "1.32")) == []


def test_the_end_of_a_versions_support_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", lambda text, *_: said.append(text))
    monkeypatch.setattr("components.catalogue.kubernetes_versions.today", lambda: date(2027, 1, 22))
    chosen = project("eks-gpu", kubernetesVersion="1.32")
    with few_files():
        deployment = up(chosen, Account("us-west-2"), preview=True)
    assert not deployment.failure
    assert [text for text in said if "support of Kubernetes 1.32 on 2027-03-23" in text]
    assert [text for text in said if text.startswith("Kubernetes 1.32 is under extended support")]
