"""Results of made-up rehearsals, and the pages that are made of them, read back."""

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rehearsal.reports.html import write_report

STACK = "urn:pulumi:dev::hyperpod::pulumi:pulumi:Stack::hyperpod-dev"
VOID = {"meta", "link", "img", "br", "hr", "input", "source", "base", "wbr"}


class Page(HTMLParser):
    """A page as a list of elements with their attributes and their text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.elements: list[dict[str, Any]] = []
        self._open: list[dict[str, Any]] = []
        self.feed(html)
        assert not self._open, f"never closed: {[element['tag'] for element in self._open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = {"tag": tag, "text": "", **dict(attrs)}
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append({"tag": tag, "text": "", **dict(attrs)})

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()["tag"] == tag

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element["text"] += data

    def all(self, tag: str, css: str = "") -> list[dict[str, Any]]:
        """The elements of a tag with a class."""
        found = [element for element in self.elements if element["tag"] == tag]
        return [element for element in found if not css or css in (element.get("class") or "").split()]

    def one(self, tag: str, css: str = "") -> dict[str, Any]:
        """The only such element."""
        (element,) = self.all(tag, css)
        return element

    def text(self, tag: str, css: str = "") -> str:
        """The only such element's text, its spaces collapsed."""
        return " ".join(self.one(tag, css)["text"].split())

    def rows(self, level: int) -> list[dict[str, Any]]:
        """The timeline's rows: components at level 1, what is in them at level 2."""
        return self.all("tr", f"level-{level}")


def name_of(row: dict[str, Any]) -> str:
    """The name in a row of the timeline."""
    words: list[str] = row["text"].split()
    return next(word for word in words if word[0].isalnum())


Render = Callable[[dict[str, Any]], Page]


def written(result: dict[str, Any], path: Path) -> Page:
    """A result's page, written and read back."""
    write_report(result, path)
    return Page(path.read_text(encoding="utf-8"))


def resource(name: str, type_: str, parent: str = "", needs: tuple[str, ...] = (), **times: float) -> dict[str, Any]:
    """A resource whose URN is its name."""
    known = {"urn": name, "type": type_, "name": name, "parent": parent, "dependencies": list(needs)}
    return known | {"start": times.get("start", 0.0), "finish": times.get("finish", 0.0)}


def sample() -> dict[str, Any]:
    """A small rehearsal: two components, a chain, a shortcut of it, a provider and the stack."""
    return {
        "title": "Slurm with GPUs",
        "stack": "dev",
        "region": "us-west-2",
        "resources": [
            resource(STACK, "pulumi:pulumi:Stack"),
            resource("provider", "pulumi:providers:aws", STACK),
            resource("network", "hyperpod:index:Network", STACK),
            resource("compute", "hyperpod:index:HyperPod", STACK),
            resource("network-vpc", "aws:ec2/vpc:Vpc", "network", ("provider",), finish=12),
            resource("network-subnet", "aws:ec2/subnet:Subnet", "network", ("network-vpc",), start=12, finish=16),
            resource("network-flow-log", "aws:ec2/flowLog:FlowLog", "network", ("network-vpc",), start=12, finish=13),
            resource(
                "compute-cluster",
                "aws-native:sagemaker:Cluster",
                "compute",
                ("network-vpc", "network-subnet"),
                start=16,
                finish=976,
            ),
        ],
        "critical_path": ["network-vpc", "network-subnet", "compute-cluster"],
        "total_seconds": 976.0,
        "cost": {
            "hourly_usd": 12.0,
            "monthly_usd": 8760.0,
            "accelerator_hourly_usd": 9.0,
            "parts": {"NAT gateway": 3.0, "workers (2 x ml.g5.16xlarge)": 9.0},
        },
        "quotas": [{"service": "sagemaker", "name": "g5 for cluster", "code": "L-1", "needed": 2, "unit": "count"}],
        "outputs": {"cluster_name": "trainer", "subnets": ["subnet-1"]},
        "warnings": ["Grafana needs an identity center."],
        "destroyed": 7,
        "leftovers": [],
    }


def failed() -> dict[str, Any]:
    """The sample, with a cluster that AWS refused, which is in no account, and a subnet that could not be deleted."""
    *made, cluster = sample()["resources"]
    subnet = next(one for one in made if one["name"] == "network-subnet")
    refused = "compute-cluster (aws-native:sagemaker:Cluster): create failed: no capacity"
    return sample() | {
        "resources": made,
        "failed": [cluster | {"finish": 16, "operation": "create"}, subnet | {"operation": "delete"}],
        "failures": [refused, "network-subnet (aws:ec2/subnet:Subnet): delete failed: in use"],
        "cause": refused,
        "next_step": "deploy again later",
        "more": "More: hyperpod explain HP017, or a page",
    }


def change(**also: Any) -> dict[str, Any]:
    """A change that makes a topic in a component of its own and deletes a role, which takes longer."""
    made = [
        resource("alerts", "hyperpod:index:Alerts", STACK),
        resource("alerts-topic", "aws:sns/topic:Topic", "alerts", finish=3) | {"operation": "create"},
        resource("network", "hyperpod:index:Network", STACK),
        resource("network-role", "aws:iam/role:Role", "network", start=3, finish=10) | {"operation": "delete"},
    ]
    told = {
        "set": {"alerts": {"email": "x"}},
        "created": ["alerts-topic"],
        "deleted": ["network-role"],
        "seconds": 10.0,
    }
    return told | {"hourly_usd": -1.5, "lost": {"storage": "all files"}, "resources": made} | also
