"""What the HTML report of a rehearsal shows."""

import re
from pathlib import Path
from typing import Any

import pytest

from components.estimates.cost import estimate
from tests.rehearsal.pages import STACK, Render, change, failed, name_of, resource, sample, written
from tests.support import ROOT, config


@pytest.fixture
def render(tmp_path: Path) -> Render:
    """Writes a result to a page and reads it back."""
    return lambda result: written(result, tmp_path / "report.html")


def test_the_page_requests_nothing(render: Render) -> None:
    result = sample()
    result["outputs"]["endpoint"] = "https://example.com/"
    page = render(result)
    for element in page.elements:
        assert element["tag"] not in {"link", "iframe", "object", "embed", "base"}
        assert not {"src", "href", "srcset", "action", "data"} & element.keys()
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", page.html)
    assert any("default-src 'none'" in (meta.get("content") or "") for meta in page.all("meta"))


def test_every_cloud_resource_is_in_the_timeline_below_its_component(render: Render) -> None:
    page = render(sample())
    assert [name_of(row) for row in page.rows(1)] == ["network", "compute"]
    assert [name_of(row) for row in page.rows(2)] == [
        *("network-vpc", "network-subnet", "network-flow-log"),
        "compute-cluster",
    ]
    assert all("hidden" in row for row in page.rows(2)), "folded at first"
    assert "provider" not in page.one("table", "timeline")["text"]


def test_components_are_in_the_order_in_which_they_start(render: Render) -> None:
    result = sample()
    result["resources"] += [
        resource("storage", "hyperpod:index:Storage", STACK),
        resource("storage-lustre", "aws:fsx/lustreFileSystem:LustreFileSystem", "storage", start=5, finish=700),
    ]
    assert [name_of(row) for row in render(result).rows(1)] == ["network", "storage", "compute"]


def test_many_files_are_one_row(render: Render) -> None:
    result = sample()
    files = [
        resource(
            f"compute-file-{number}", "aws:s3/bucketObjectv2:BucketObjectv2", "compute", start=number / 10, finish=20
        )
        for number in range(56)
    ]
    result["resources"] += files
    rows = [" ".join(row["text"].split()) for row in render(result).rows(2)]
    assert len(rows) == 5
    assert "56 x s3 BucketObjectv2 compute-file-0 and others 0:00 0:20" in rows


def test_bars_follow_time_on_one_scale_and_short_tasks_stay_visible(render: Render) -> None:
    page = render(sample())
    shown = [row["text"].split()[0] for row in page.rows(2)]
    bars = page.html.split('class="level-2')[1:]
    at = {
        name: re.search(r"left: min\(([\d.]+)%.*width: ([\d.]+)%", bar) for name, bar in zip(shown, bars, strict=True)
    }
    places = {name: (float(found[1]), float(found[2])) for name, found in at.items() if found}
    assert places.keys() == at.keys()
    assert places["◆"] == pytest.approx((100 * 16 / 976, 100 * 960 / 976), abs=0.01), "the cluster, drawn last"
    assert places["network-flow-log"] == pytest.approx((100 * 12 / 976, 100 * 1 / 976), abs=0.01)
    assert re.search(r"\.bar \{[^}]*min-width: 3px", page.html)


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


def test_the_critical_path_is_listed_and_marked_in_the_timeline(render: Render) -> None:
    page = render(sample())
    assert [name_of(row) for row in page.rows(2) if "◆" in row["text"]] == [
        "network-vpc",
        "network-subnet",
        "compute-cluster",
    ]
    assert page.text("section", "path").endswith("network-vpc 0:12 network-subnet 0:04 compute-cluster 16:00")


def test_a_name_shared_by_types_is_critical_only_where_it_is_linked(render: Render) -> None:
    vpc, alarm = resource("a", "aws:ec2/vpc:Vpc", finish=1), resource("b", "aws:sns/topic:Topic", finish=9)
    alarm["name"] = "a"
    last = resource("c", "aws:ec2/subnet:Subnet", needs=("a",), start=1, finish=10)
    page = render({"resources": [vpc, alarm, last], "critical_path": ["a", "c"]})
    assert [row["text"].split()[:3] for row in page.rows(2) if "◆" in row["text"]] == [
        ["◆", "a", "ec2"],
        ["◆", "c", "ec2"],
    ]


def test_the_verdict_fits_on_two_lines(render: Render) -> None:
    page = render(sample())
    assert page.text("h1") == "✓ passed Rehearsal of dev"
    assert page.text("ul", "facts") == ("ready in 16:16 $12.00 an hour 4 resources 7 destroyed, nothing left behind")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"resources": [*failed()["resources"], failed()["failed"][0]]},
            "3 resources created, 1 half-made 7 destroyed",
        ),
        ({"changes": [change(resources=change()["resources"][:2] * 3)]}, "4 resources +3 by changes 7 destroyed"),
        ({"retained": ["storage (fs-1)"]}, "7 destroyed, 1 kept on purpose, nothing else left behind"),
    ],
)
def test_counts_agree_or_say_why(more: dict[str, Any], said: str, render: Render) -> None:
    page = render((failed() if "resources" in more else sample()) | more)
    assert said in " ".join(page.all("ul", "facts")[0]["text"].split())


def test_leftovers_are_shown_as_a_failure(render: Render) -> None:
    page = render(sample() | {"leftovers": ["bucket lifecycle-scripts", {"id": "vpc-1"}]})
    assert page.text("h1") == "✗ failed Rehearsal of dev"
    assert "2 left behind" in page.text("ul", "facts")
    assert "bucket lifecycle-scripts" in page.text("ul", "leftovers")
    assert "vpc-1" in page.text("ul", "leftovers")
    assert not page.all("section", "good")


def test_a_failed_rehearsal_opens_with_the_verdict_the_first_cause_and_the_next_step(render: Render) -> None:
    page = render(failed())
    body = " ".join(re.sub(r"<[^>]+>", " ", page.html.split("<body>")[1]).split())
    assert body.startswith("✗ failed Rehearsal of dev failed after 0:16 ")
    order = (
        "3 resources created",
        "What failed first",
        "no capacity",
        "Next: deploy again later",
        "More: hyperpod",
        "Cost",
        "Quotas",
    )
    places = [body.index(text) for text in (*order, "Critical path", "Timeline")]
    assert places == sorted(places)
    assert page.text("section", "verdict").endswith("delete failed: in use")
    assert not page.all("section", "good"), "nothing is green"
    assert "ready in" not in page.html


def test_what_failed_is_marked_in_the_timeline(render: Render) -> None:
    page = render(failed())
    marked = {name_of(row): row for row in page.rows(2) if "✗" in row["text"]}
    assert marked.keys() == {"compute-cluster", "network-subnet"}
    assert "create failed" in marked["compute-cluster"]["text"]
    assert "delete failed" in marked["network-subnet"]["text"]
    assert not any("hidden" in row for row in page.rows(2)), "what failed is not folded"
    assert "✗" not in render(sample()).one("main")["text"]


def test_a_change_is_drawn_with_its_time_cost_and_losses(render: Render) -> None:
    page = render(sample() | {"changes": [change()]})
    text = page.text("section", "change")
    assert text.startswith('Change 1: alerts = { "email": "x" } takes 0:10 -$1.50 an hour ✗ lost: storage, all files')
    assert "1 created alerts-topic 1 deleted network-role" in text
    rows = [" ".join(row["text"].split()) for row in page.rows(2)]
    assert "network-role delete iam Role 0:03 0:07" in rows
    assert "alerts-topic create sns Topic 0:00 0:03" in rows


def test_a_refused_change_is_a_failure(render: Render) -> None:
    refused = change(refused="no such size", early=True, resources=[])
    page = render(sample() | {"changes": [refused], "cause": "no such size"})
    assert page.text("h1") == "✗ failed Rehearsal of dev"
    assert "What failed first no such size" in page.text("section", "verdict")
    assert "✗ refused before anything happens: no such size" in page.text("section", "change")


def test_a_rehearsal_without_destroy_does_not_claim_to_be_clean(render: Render) -> None:
    result = sample()
    del result["destroyed"]
    page = render(result)
    assert "not destroyed" in page.text("ul", "facts")
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
    assert page.one("h1")["text"].endswith(f"Rehearsal of {hostile}")
    assert page.text("p", "cause") == " ".join(hostile.split())


def test_accelerators_stand_out_in_the_cost(render: Render) -> None:
    page = render(sample())
    assert page.text("tr", "accelerated") == "workers (2 x ml.g5.16xlarge) $9.00 $6,570"
    assert "75 % of it accelerators" in page.text("section", "cost")


def test_an_unknown_price_is_no_zero_on_the_page(render: Render) -> None:
    group = [{"name": "w", "instanceType": kind, "count": 2} for kind in ("ml.p7.48xlarge",)]
    spot = {"name": "s", "instanceType": "ml.g7e.48xlarge", "count": 1}
    unknown = estimate(config("dev", workers=group)).as_json()
    page = render(sample() | {"cost": unknown})
    assert "at least $1.13 an hour, the rest unknown" in " ".join(page.text("ul", "facts").split())
    assert page.text("tr", "accelerated") == "w (2 x ml.p7.48xlarge) unknown unknown"
    assert "price of 2 x ml.p7.48xlarge unknown" in page.text("section", "cost")
    assert "% of it accelerators" not in page.text("section", "cost")
    guessed = render(sample() | {"cost": estimate(config("dev", workers=[spot])).as_json()})
    assert guessed.text("tr", "accelerated") == "s (1 x ml.g7e.48xlarge) ≈$33.14 ≈$24,195"
    assert "as an estimate, by EC2's on-demand rate" in guessed.text("section", "cost")


def test_the_most_that_spot_costs_is_marked(render: Render) -> None:
    spot = {"name": "s", "instanceType": "ml.p5.48xlarge", "count": 1, "capacity": "spot"}
    page = render(sample() | {"cost": estimate(config("slurm-gpu", workers=[spot])).as_json()})
    assert page.text("tr", "accelerated").startswith("s (1 x ml.p5.48xlarge) ≤$66.05")
    assert "at most $67.08 an hour" in " ".join(page.text("ul", "facts").split())


def test_a_change_whose_price_is_unknown_says_so(render: Render) -> None:
    page = render(sample() | {"changes": [change(hourly_usd=None)]})
    assert "price unknown of what differs" in " ".join(page.text("section", "change").split())


def test_where_prices_are_from_is_said(render: Render) -> None:
    result = sample()
    result["cost"]["notes"] = ["list prices of us-west-2"]
    assert render(result).html.count("list prices of us-west-2") == 1


@pytest.mark.parametrize("kind", ["ml.p5en.48xlarge", "ml.p6-b200.48xlarge", "trn2u.48xlarge", "g6e.12xlarge"])
def test_accelerated_instances_are_told_from_others(render: Render, kind: str) -> None:
    parts = {f"workers (1 x {kind})": 1.0, "controller (1 x ml.m5.xlarge)": 1.0, "login (1 x ml.c7g.large)": 1.0}
    page = render({"cost": {"hourly_usd": 3.0, "accelerator_hourly_usd": 1.0, "parts": parts}})
    assert kind in page.text("tr", "accelerated")


def test_quotas_outputs_and_warnings_are_listed(render: Render) -> None:
    html = render(sample()).html
    for text in ("g5 for cluster", "L-1", "cluster_name", "trainer", "subnet-1", "Grafana needs an identity center."):
        assert text in html


def test_commands_in_sentences_are_shown_as_code_without_backticks(render: Render) -> None:
    page = render(sample() | {"warnings": ["before it: `hyperpod download charts <x>`"]})
    assert "before it: <code>hyperpod download charts &lt;x&gt;</code>" in page.html
    assert "`hyperpod" not in page.html


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
    assert "0 resources" in page.text("ul", "facts")


def test_every_chart_has_one_tab_stop(tmp_path: Path) -> None:
    page = written(sample() | {"changes": [change()]}, tmp_path / "report.html")
    assert len([one for one in page.elements if "data-chart" in one]) == 2
    assert [one.get("tabindex") for one in page.elements if "tabindex" in one].count("0") == 2


def test_texts_are_at_least_12_px_and_of_enough_contrast_in_light_and_dark() -> None:
    """WCAG 2.2: 4.5 to 1 for texts (1.4.3), 3 to 1 for bars and lines that mean something (1.4.11)."""
    css = (ROOT / "rehearsal" / "reports" / "report.css").read_text()
    assert min(int(size) for size in re.findall(r"font(?:-size)?: (\d+)px", css)) >= 12
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6});", block)) for block in css.split("@media")[:2])
    for colours in (light, light | dark):
        for text, ground in TEXTS:
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for mark in ("task", "critical", "failed", "focus"):
            assert contrast(colours[mark], colours["card"]) >= 3, mark


TEXTS = [
    *(("ink", ground) for ground in ("card", "hover", "warn-soft")),
    *(("muted", ground) for ground in ("card", "hover")),
    *(("good", "good-soft"), ("bad", "bad-soft"), ("bad", "card"), ("warn", "warn-soft"), ("failed", "card")),
]


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours (WCAG 2.2, relative luminance)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
