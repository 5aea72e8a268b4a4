"""Collectors of Amazon Managed Service for Prometheus that read an EKS cluster, as records.

Amazon Managed Service for Prometheus User Guide, "Using an AWS managed collector".
"""

import base64
import re
from typing import Any

from components.common.documents import load

from .books import Books, Inputs, Live, Refused
from .eks import CLUSTER
from .kinds import register
from .records import record

_TOKEN = "aws:amp/scraper:Scraper"
_LEAST_SECONDS = 30
# Prometheus documentation, "Configuration", <duration>, and the sections that the guide allows.
_DURATION, _UNITS = re.compile(r"(\d+)(ms|s|m|h)"), {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
_SECTIONS = {"global", "scrape_configs"}
_DISCOVERIES = {"kubernetes_sd_configs", "static_configs"}
_BEARER = "/var/run/secrets/kubernetes.io/serviceaccount/token"


def _properties(i: Inputs) -> dict[str, Any]:
    given = {"ClusterArn": "clusterArn", "SubnetIds": "subnetIds", "SecurityGroupIds": "securityGroupIds"}
    eks = {name: i["source"]["eks"][key] for name, key in given.items() if i["source"]["eks"].get(key)}
    tags = i.get("tagsAll") or i.get("tags") or {}
    properties = {
        "Alias": i.get("alias"),
        "ScrapeConfiguration": {"ConfigurationBlob": base64.b64encode(i["scrapeConfiguration"].encode()).decode()},
        "Source": {"EksConfiguration": eks},
        "Destination": {"AmpConfiguration": {"WorkspaceArn": i["destination"]["amp"]["workspaceArn"]}},
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    return {key: value for key, value in properties.items() if value is not None}


def _create(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    _check_configuration(i["scrapeConfiguration"])
    _check_destination(account, i)
    eks = i["source"]["eks"]
    cluster = next(one for one in account.find(CLUSTER) if one.outputs["arn"] == eks["clusterArn"])
    if not cluster.inputs["vpcConfig"].get("endpointPrivateAccess"):
        raise Refused("ValidationException", "the cluster's endpoint access must include private access")
    if (cluster.inputs.get("accessConfig") or {}).get("authenticationMode") == "CONFIG_MAP":
        raise Refused("ValidationException", "the cluster's authentication mode does not allow access entries")
    subnets = [one for one in account.find("aws:ec2/subnet:Subnet") if one.id in eks["subnetIds"]]
    if len({subnet.inputs["availabilityZoneId"] for subnet in subnets}) < 2:
        raise Refused("ValidationException", "at least two subnets, in at least two availability zones")
    scraper = account.new_id("s")
    role = f"role/aws-service-role/scraper.aps.amazonaws.com/AWSServiceRoleForAmazonPrometheusScraper_{scraper[2:]}"
    return scraper, {"arn": account.arn("aps", f"scraper/{scraper}"), "roleArn": account.arn("iam", role, region="")}


def _update(account: Books, live: Live, i: Inputs) -> None:
    _check_configuration(i["scrapeConfiguration"])
    _check_destination(account, i)


def _check_destination(account: Books, i: Inputs) -> None:
    """The guide, "Creating scraper for workspaces enabled with customer managed keys"."""
    arn = i["destination"]["amp"]["workspaceArn"]
    workspace = next((one for one in account.find("aws:amp/workspace:Workspace") if one.outputs["arn"] == arn), None)
    if workspace and workspace.inputs.get("kmsKeyArn") and not i.get("roleConfiguration"):
        raise Refused("ValidationException", "a workspace with a customer managed key needs a role configuration")


def _check_configuration(text: str) -> None:
    """The guide, "Scraper configuration": what it takes of Prometheus' own, which Prometheus itself checks in tests."""
    given = load(text)
    if not isinstance(given, dict) or not given.keys() <= _SECTIONS or not given.get("scrape_configs"):
        raise Refused("ValidationException", f"the scrape configuration has {', '.join(sorted(_SECTIONS))} alone")
    for part in (given.get("global") or {}, *given["scrape_configs"]):
        if other := {key for key in part if key.endswith("sd_configs")} - _DISCOVERIES:
            raise Refused("ValidationException", f"{', '.join(sorted(other))} is not supported")
        if _seconds(part.get("scrape_interval", f"{_LEAST_SECONDS}s")) < _LEAST_SECONDS:
            raise Refused("ValidationException", f"a scrape interval is at least {_LEAST_SECONDS} seconds")
        if (part.get("authorization") or {}).get("credentials_file", _BEARER) != _BEARER:
            raise Refused("ValidationException", f"the only credentials are those in {_BEARER}")


def _seconds(text: str) -> float:
    return sum(int(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))


register(record(_TOKEN, "AWS::APS::Scraper", _create, translate=_properties, on_update=_update))
