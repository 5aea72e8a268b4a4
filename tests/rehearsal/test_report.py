"""What the HTML report of a rehearsal shows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rehearsal.reports.html import write_report

STACK = "urn:pulumi:dev::hyperpod::pulumi:pulumi:Stack::hyperpod-dev"
VOID = {"meta", "link", "img", "br", "hr", "input", "source", "base"}


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

    @property
    def edges(self) -> set[tuple[str, str]]:
        """The curves of the graph, as pairs of names."""
        names = {row["data-id"]: row["data-name"] for row in self.all("g", "row")}
        return {(names[edge["data-from"]], names[edge["data-to"]]) for edge in self.all("path", "edge")}


Render = Callable[[dict[str, Any]], Page]


@pytest.fixture
def render(tmp_path: Path) -> Render:
    """Writes a result to a page and reads it back."""

    def write_and_read(result: dict[str, Any]) -> Page:
        write_report(result, tmp_path / "report.html")
        return Page((tmp_path / "report.html").read_text(encoding="utf-8"))

    return write_and_read


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


def test_the_page_requests_nothing(render: Render) -> None:
    result = sample()
    result["outputs"]["endpoint"] = "https://example.com/"
    page = render(result)
    for element in page.elements:
        assert element["tag"] not in {"link", "iframe", "object", "embed", "base"}
        assert not {"src", "href", "srcset", "action", "data"} & element.keys()
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", page.html)
    assert any("default-src 'none'" in (meta.get("content") or "") for meta in page.all("meta"))


def test_every_cloud_resource_is_in_the_timeline_and_in_the_graph(render: Render) -> None:
    page = render(sample())
    names = {"network-vpc", "network-subnet", "network-flow-log", "compute-cluster"}
    assert {row["data-name"] for row in page.all("g", "row")} == names
    assert {node["text"].split()[0] for node in page.all("g", "node")} == names


def test_the_stack_and_providers_are_left_out_and_components_are_headings(render: Render) -> None:
    page = render(sample())
    assert [" ".join(lane["text"].split()) for lane in page.all("g", "lane")] == ["network", "compute"]
    assert "provider" not in page.all("svg")[-1]["text"]


def test_bars_follow_time_on_one_scale_and_short_tasks_stay_visible(render: Render) -> None:
    page = render(sample())
    bars = {row["data-name"]: bar for row, bar in zip(page.all("g", "row"), page.all("rect", "bar"), strict=True)}
    assert float(bars["compute-cluster"]["width"]) > 700
    assert float(bars["network-flow-log"]["width"]) >= 3
    assert float(bars["network-subnet"]["x"]) > float(bars["network-vpc"]["x"])


def test_time_spent_waiting_for_nodes_is_shown_apart_from_the_cluster(render: Render) -> None:
    result = sample()
    queue = resource("queue", "kubernetes:kueue:Queue", STACK, ("compute-cluster",), start=976, finish=1038)
    result["resources"].append(queue)
    result |= {"total_seconds": 1038.0, "cluster": {"seconds": 976.0}}
    result["critical_path"].append("queue")
    page = render(result).html
    assert "ready in <b>16:16</b>" in page
    assert "queues <b>1:02</b> later" in page
    assert page.count('class="later"') == 1
    assert "later" not in render(sample()).html.split("</header>")[0].split("<body>")[1]


def test_the_critical_path_is_marked_everywhere(render: Render) -> None:
    page = render(sample())
    path = ["network-vpc", "network-subnet", "compute-cluster"]
    assert [row["data-name"] for row in page.all("g", "critical") if "data-name" in row] == path
    assert len(page.all("g", "critical")) == 2 * len(path)
    assert len(page.all("path", "critical")) == len(path) - 1
    assert "network-vpc 0:12" in re.sub(r"(?=0:12)", " ", page.text("ol", "path"))


def test_a_name_shared_by_types_is_critical_only_where_it_is_linked(render: Render) -> None:
    vpc, alarm = resource("a", "aws:ec2/vpc:Vpc", finish=1), resource("b", "aws:sns/topic:Topic", finish=9)
    alarm["name"] = "a"
    last = resource("c", "aws:ec2/subnet:Subnet", needs=("a",), start=1, finish=10)
    page = render({"resources": [vpc, alarm, last], "critical_path": ["a", "c"]})
    marked = [node["text"] for node in page.all("g", "critical") if "data-name" not in node]
    assert any("aws:ec2/vpc:Vpc" in text for text in marked)
    assert not any("aws:sns/topic:Topic" in text for text in marked)


def test_dependencies_that_others_imply_are_not_drawn(render: Render) -> None:
    assert render(sample()).edges == {
        ("network-vpc", "network-subnet"),
        ("network-vpc", "network-flow-log"),
        ("network-subnet", "compute-cluster"),
    }


def test_waiting_for_a_component_is_waiting_for_what_is_in_it(render: Render) -> None:
    result = sample()
    result["resources"][-1]["dependencies"] = ["network", "compute"]
    assert {edge for edge in render(result).edges if edge[1] == "compute-cluster"} == {
        ("network-subnet", "compute-cluster"),
        ("network-flow-log", "compute-cluster"),
    }


def test_the_verdict_fits_on_one_line(render: Render) -> None:
    verdict = render(sample()).text("p", "verdict")
    assert verdict == ("passed dev 4 resources ready in 16:16 $12.00/h $8,760/month 7 destroyed nothing left behind")


def test_leftovers_are_shown_as_a_failure(render: Render) -> None:
    page = render(sample() | {"leftovers": ["bucket lifecycle-scripts", {"id": "vpc-1"}]})
    assert [one["text"] for one in page.all("span", "bad")] == ["failed", "2 left behind"]
    assert "bucket lifecycle-scripts" in page.text("section", "leftovers")
    assert "vpc-1" in page.text("section", "leftovers")
    assert not page.all("span", "good")


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
    }


def test_a_failed_rehearsal_opens_with_the_verdict_the_first_cause_and_the_next_step(render: Render) -> None:
    page = render(failed())
    body = " ".join(re.sub(r"<[^>]+>", " ", page.html.split("<body>")[1]).split())
    assert body.startswith("Rehearsal report failed dev 3 resources created failed after 0:16 ")
    places = [body.index(text) for text in ("What failed first", "no capacity", "Next: deploy again later", "Timeline")]
    assert places == sorted(places)
    assert page.text("section", "failure").endswith("delete failed: in use")
    assert not page.all("span", "good"), "nothing is green"
    assert "ready in" not in page.html


def test_what_failed_is_marked_in_the_timeline_and_in_the_graph(render: Render) -> None:
    page = render(failed())
    marked = {row["data-name"]: " ".join(row["text"].split()) for row in page.all("g", "failed") if "data-name" in row}
    assert marked.keys() == {"compute-cluster", "network-subnet"}
    assert "✗ create failed" in marked["compute-cluster"]
    assert "✗ delete failed" in marked["network-subnet"]
    assert len(page.all("g", "failed")) == 4
    assert not render(sample()).all("g", "failed")


def test_a_refused_change_is_a_failure(render: Render) -> None:
    page = render(sample() | {"changes": [{"set": {"size": "x"}, "refused": "no such size"}], "cause": "no such size"})
    assert page.text("span", "bad") == "failed"
    assert "no such size" in page.text("section", "failure")


def test_a_rehearsal_without_destroy_does_not_claim_to_be_clean(render: Render) -> None:
    result = sample()
    del result["destroyed"]
    page = render(result)
    assert page.text("span", "open") == "not destroyed"
    assert "nothing left behind" not in page.html


def test_any_text_is_escaped(render: Render) -> None:
    hostile = "\"'</script></title></svg><script>alert(1)</script>"
    result = sample()
    scripts = len(render(result).all("script"))
    for each in result["resources"]:
        each["name"] = each["type"].rpartition(":")[2] + hostile
        each["type"] += hostile
    result |= {
        "title": hostile,
        "stack": hostile,
        "region": hostile,
        "critical_path": [each["name"] for each in result["resources"]],
        "quotas": [dict.fromkeys(("service", "name", "code", "needed", "unit"), hostile)],
        "outputs": {hostile: hostile, "nested": [hostile]},
        "warnings": [hostile],
        "leftovers": [hostile],
        "failures": [hostile, hostile + "!"],
        "cause": hostile,
        "next_step": hostile,
    }
    result["cost"]["parts"] = {hostile: 12.0}
    page = render(result)
    assert len(page.all("script")) == scripts
    assert "<script>alert" not in page.html
    assert page.all("b")[0]["text"] == hostile
    assert page.text("p", "cause") == " ".join(hostile.split())


def test_accelerators_stand_out_in_the_cost(render: Render) -> None:
    page = render(sample())
    (workers,) = page.all("span", "accelerated")
    assert "workers (2 x ml.g5.16xlarge): $9.00/h" in workers["title"]
    (gateway,) = page.all("span", "other")
    assert "NAT gateway" in gateway["title"]
    assert "75 % of it" in page.html


@pytest.mark.parametrize("kind", ["ml.p5en.48xlarge", "ml.p6-b200.48xlarge", "trn2u.48xlarge", "g6e.12xlarge"])
def test_accelerated_instances_are_told_from_others(render: Render, kind: str) -> None:
    parts = {f"workers (1 x {kind})": 1.0, "controller (1 x ml.m5.xlarge)": 1.0, "login (1 x ml.c7g.large)": 1.0}
    page = render({"cost": {"hourly_usd": 3.0, "accelerator_hourly_usd": 1.0, "parts": parts}})
    (accelerated,) = page.all("span", "accelerated")
    assert kind in accelerated["title"]


def test_quotas_outputs_and_warnings_are_listed(render: Render) -> None:
    html = render(sample()).html
    for text in ("g5 for cluster", "L-1", "cluster_name", "trainer", "subnet-1", "Grafana needs an identity center."):
        assert text in html


def test_secret_outputs_stay_secret(render: Render) -> None:
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "plaintext": "hunter2"}
    page = render({"outputs": {"password": secret, "nested": [secret]}})
    assert "hunter2" not in page.html
    assert page.html.count("[secret]") == 2


@pytest.mark.parametrize(
    "result",
    [
        {},
        {key: type(value)() for key, value in sample().items()},
        dict.fromkeys(sample()),
    ],
    ids=["nothing", "empty values", "nulls"],
)
def test_an_empty_result_makes_a_page(render: Render, result: dict[str, Any]) -> None:
    page = render(result)
    assert "No resources." in page.html
    assert "No quotas." in page.html
    assert "0 resources" in page.text("p", "verdict")


@pytest.mark.parametrize("count", [30, 130])
def test_no_two_nodes_share_a_place_and_curves_run_left_to_right(render: Render, count: int) -> None:
    resources = [resource(f"part-{index}", "hyperpod:index:Part") for index in range(9)]
    for index in range(count):
        needs = (f"item-{index // 2}",) if index % 5 and index else ()
        name = f"item-{index}"
        resources.append(resource(name, "aws:iam/role:Role", f"part-{index % 9}", needs, start=index, finish=index + 1))
    page = render({"resources": resources})
    places = [node["transform"] for node in page.all("g", "node")]
    assert len(set(places)) == len(places) == count
    edges = json.loads(next(script for script in page.all("script") if script.get("id") == "edges")["text"])
    at = {node["data-id"]: float(re.findall(r"[\d.]+", node["transform"])[0]) for node in page.all("g", "node")}
    assert all(at[str(before)] < at[str(after)] for before, after in edges)
