"""The import: into the stack's Grafana or one's own, twice, refused, broken off; and what becomes of the token."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from operations import target
from operations.dashboards import importing
from operations.dashboards.grafana import Grafana
from operations.dashboards.importing import TOKEN
from operations.failures import Exit, Failure
from tests.operations.aws import ACCOUNT, StubbedAws, ended, ended_json, run
from tests.operations.dashboards.fake_grafana import FakeGrafana, running
from tests.operations.small import Planning

WORKSPACE, PROMETHEUS = "g-0123456789", "ws-12345678-1234-1234-1234-123456789012"
ON = ('hyperpod:observability={"prometheus": "create", "grafana": "create"}',)
_WHERE = {"workspaceId": WORKSPACE, "serviceAccountId": "7"}


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    with running(FakeGrafana()) as one:
        yield one


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between attempts, and an address without TLS; the verb's stack has both workspaces."""
    monkeypatch.setattr(importing, "Grafana", partial(Grafana, pause=0))
    monkeypatch.setattr(importing, "_ADDRESS", "http://{}")


@pytest.fixture
def account(aws: StubbedAws, grafana: FakeGrafana, monkeypatch: pytest.MonkeyPatch) -> StubbedAws:
    """The stack's account, with its Grafana at the fake's address."""
    on(monkeypatch, aws, *ON)
    with_workspaces(aws, grafana)
    return aws


def on(monkeypatch: pytest.MonkeyPatch, aws: StubbedAws, *settings: str) -> None:
    """The verb works on an account, with these settings."""
    load = target.load
    monkeypatch.setattr(target, "load", lambda name, *_: replace(load(name, list(settings)), aws=aws))


def with_workspaces(aws: StubbedAws, grafana: FakeGrafana) -> None:
    arns = [
        f"arn:aws:aps:us-west-2:{ACCOUNT}:rulegroupsnamespace/{PROMETHEUS}/gpu",
        f"arn:aws:grafana:us-west-2:{ACCOUNT}:/workspaces/{WORKSPACE}",
        f"arn:aws:aps:us-west-2:{ACCOUNT}:workspace/{PROMETHEUS}",
    ]
    tagged = {"ResourceTagMappingList": [{"ResourceARN": arn} for arn in arns]}
    for _ in range(2):
        aws.answer("resourcegroupstaggingapi", "get_resources", tagged)
    there = {"id": WORKSPACE, "endpoint": grafana.url.removeprefix("http://"), "status": "ACTIVE"}
    rest = {
        "authentication": {"providers": ["AWS_SSO"]},
        "created": 0,
        "modified": 0,
        "dataSources": [],
        "grafanaVersion": "10.4",
    }
    aws.answer("grafana", "describe_workspace", {"workspace": {**there, **rest}}, workspaceId=WORKSPACE)
    endpoint = f"https://aps-workspaces.us-west-2.amazonaws.com/workspaces/{PROMETHEUS}/"
    arn = {"workspaceId": PROMETHEUS, "arn": arns[2], "status": {"statusCode": "ACTIVE"}, "createdAt": 0}
    aws.answer(
        "amp", "describe_workspace", {"workspace": {**arn, "prometheusEndpoint": endpoint}}, workspaceId=PROMETHEUS
    )


def with_token(aws: StubbedAws, grafana: FakeGrafana, *, deleted: bool = True) -> None:
    made = {"id": "7", "name": "x", "grafanaRole": "ADMIN", "workspaceId": WORKSPACE}
    aws.answer("grafana", "create_workspace_service_account", made, grafanaRole="ADMIN", workspaceId=WORKSPACE)
    token = {"serviceAccountToken": {"id": "9", "key": grafana.token, "name": "x"}, **_WHERE}
    aws.answer("grafana", "create_workspace_service_account_token", token, secondsToLive=600, **_WHERE)
    if deleted:
        aws.answer(
            "grafana", "delete_workspace_service_account_token", {"tokenId": "9", **_WHERE}, tokenId="9", **_WHERE
        )
        aws.answer("grafana", "delete_workspace_service_account", _WHERE, **_WHERE)


def test_a_stack_gets_its_pages_its_data_source_and_a_token_that_is_gone(
    account: StubbedAws, grafana: FakeGrafana
) -> None:
    with_token(account, grafana)
    document = ended_json(Exit.GOOD, "dashboards", "dev")
    account.assert_all_asked()
    assert list(grafana.folders) == ["hyperpod"]
    source = grafana.sources[PROMETHEUS]
    assert (source["type"], source["url"]) == (
        "prometheus",
        f"https://aps-workspaces.us-west-2.amazonaws.com/workspaces/{PROMETHEUS}",
    )
    wanted = {"httpMethod": "POST", "sigV4Auth": True, "sigV4AuthType": "ec2_iam_role", "sigV4Region": "us-west-2"}
    assert wanted.items() <= source["jsonData"].items()
    names = ["overview", "gpu", "gpu-health", "efa", "storage", "slurm", "training", "cost"]
    assert list(grafana.dashboards) == [f"hyperpod-{name}" for name in names]
    assert {one["folderUid"] for one in grafana.dashboards.values()} == {"hyperpod"}
    assert document["dashboards"][0]["url"] == f"{grafana.url}/d/hyperpod-overview/hyperpod-overview"
    variables = {one["name"]: one for one in grafana.dashboards["hyperpod-overview"]["templating"]["list"]}
    assert variables["datasource"]["current"]["value"] == PROMETHEUS
    assert variables["cluster"]["current"]["value"] == "hyperpod-dev"


def test_a_second_import_changes_nothing_but_versions(account: StubbedAws, grafana: FakeGrafana) -> None:
    with_token(account, grafana)
    assert run("dashboards", "dev")[0] == Exit.GOOD
    # What people did meanwhile stays.
    grafana.folders["hyperpod"]["title"] = "Our cluster"
    grafana.sources[PROMETHEUS]["isDefault"] = True
    before = {uid: {**one, "version": 2} for uid, one in grafana.dashboards.items()}
    with_workspaces(account, grafana)
    with_token(account, grafana)
    assert run("dashboards", "dev")[0] == Exit.GOOD
    account.assert_all_asked()
    assert grafana.dashboards == before
    assert grafana.folders["hyperpod"]["title"] == "Our cluster"
    assert len(grafana.sources) == 1
    assert grafana.sources[PROMETHEUS]["isDefault"] is True


@pytest.mark.parametrize(
    ("path", "answers", "code", "said"),
    [
        ("/api/folders/hyperpod", [(401, {"message": "Invalid API key"})], Exit.CANNOT_KNOW, "does not accept"),
        ("/api/datasources", [(403, {"message": "Access denied"})], Exit.CANNOT_KNOW, "role Admin"),
        ("/api/dashboards/db", [(412, {"message": "taken", "status": "plugin-dashboard"})], 1, "plugin-dashboard"),
        ("/api/dashboards/db", [(400, {"message": "bad"})], Exit.FAILED, "refused the dashboard"),
        ("/api/dashboards/db", [(502, {})] * 3, Exit.CANNOT_KNOW, "failed with 502"),
        ("/api/dashboards/db", [b"<html>sign in</html>"], Exit.CANNOT_KNOW, "did not answer as Grafana does"),
        ("/api/folders", [(409, {"message": "exists"})], Exit.FAILED, "another folder with the title HyperPod"),
    ],
)  # fmt: skip
def test_a_refusal_is_explained_and_the_token_is_deleted(
    path: str, answers: list[Any], code: int, said: str, account: StubbedAws, grafana: FakeGrafana
) -> None:
    grafana.instead[path] = answers
    with_token(account, grafana)
    ended, out, err = run("dashboards", "dev")
    assert (ended, said in err) == (code, True), err
    account.assert_all_asked()
    assert grafana.token not in out + err


def test_what_passes_is_tried_again_and_a_folder_made_meanwhile_is_used(
    account: StubbedAws, grafana: FakeGrafana
) -> None:
    grafana.instead["/api/dashboards/db"] = [(503, {}), (500, {"message": "database is locked"})]
    grafana.folders["hyperpod"] = {"uid": "hyperpod", "title": "HyperPod"}
    grafana.instead["/api/folders/hyperpod"] = [(404, {"message": "folder not found"})]
    with_token(account, grafana)
    assert run("dashboards", "dev")[0] == Exit.GOOD
    assert grafana.asked.count("POST /api/dashboards/db") == 10
    assert grafana.asked.count("POST /api/folders") == 1


def test_a_token_that_repeats_in_grafanas_answer_is_not_printed(account: StubbedAws, grafana: FakeGrafana) -> None:
    grafana.instead["/api/dashboards/db"] = [(400, {"message": f"bad header Bearer {grafana.token}"})]
    with_token(account, grafana)
    _, out, err = run("dashboards", "dev", "--json")
    assert "[secret]" in err
    assert grafana.token not in out + err


def test_an_account_that_cannot_be_deleted_is_a_warning_with_the_command(
    account: StubbedAws, grafana: FakeGrafana
) -> None:
    with_token(account, grafana, deleted=False)
    account.refuse("grafana", "delete_workspace_service_account_token", "ThrottlingException")
    account.refuse("grafana", "delete_workspace_service_account", "AccessDeniedException")
    out, _ = ended(Exit.GOOD, "dashboards", "dev")
    assert f"aws grafana delete-workspace-service-account --workspace-id {WORKSPACE} --service-account-id 7" in out


def test_without_a_token_the_account_is_deleted_all_the_same(account: StubbedAws, grafana: FakeGrafana) -> None:
    made = {"id": "7", "name": "x", "grafanaRole": "ADMIN", "workspaceId": WORKSPACE}
    account.answer("grafana", "create_workspace_service_account", made)
    account.refuse("grafana", "create_workspace_service_account_token", "AccessDeniedException")
    account.answer("grafana", "delete_workspace_service_account", _WHERE, **_WHERE)
    assert run("dashboards", "dev")[0] == Exit.CANNOT_KNOW
    account.assert_all_asked()
    assert not grafana.asked


def test_a_grafana_of_ones_own_takes_a_token_from_the_environment(
    aws: StubbedAws, grafana: FakeGrafana, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, aws)
    own = ("dashboards", "eks-gpu", "--url", grafana.url, "--data-source", "mine")
    code, _, err = run(*own)
    assert (code, TOKEN in err) == (Exit.BAD_INPUT, True)
    monkeypatch.setenv(TOKEN, grafana.token)
    code, _, err = run(*own)
    assert (code, "no data source with the uid mine" in err) == (Exit.BAD_INPUT, True)
    grafana.sources["mine"] = {"uid": "mine", "name": "Prometheus of ours"}
    code, out, _ = run(*own)
    assert (code, grafana.token in out) == (Exit.GOOD, False)
    assert "hyperpod-kubernetes" in grafana.dashboards
    assert grafana.sources == {"mine": {"uid": "mine", "name": "Prometheus of ours"}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "has no Grafana workspace"),
        (("--url", "https://grafana.invalid"), "has no Prometheus workspace"),
        (("--url", "grafana", "--data-source", "x"), "is not the address of a Grafana"),
        (("--url", "http://grafana.example.com", "--data-source", "x"), "in the clear"),
    ],
)
def test_what_is_missing_or_unsafe_is_said_before_anything_is_asked(
    words: tuple[str, ...], said: str, aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, aws)
    monkeypatch.setenv(TOKEN, "t")
    code, _, err = run("dashboards", "dev", *words)
    assert (code, said in err) == (Exit.BAD_INPUT, True)


def test_a_grafana_that_is_gone_is_cannot_know() -> None:
    with pytest.raises(Failure, match="cannot be reached") as ended:
        Grafana("http://127.0.0.1:9", "t", pause=0).source("x")
    assert ended.value.code == Exit.CANNOT_KNOW


@pytest.fixture
def planning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Deployments of an engine that only says that it is done; records stay out of the checkout."""
    monkeypatch.setattr("operations.records.FOLDER", str(tmp_path))
    monkeypatch.setattr("operations.commands.deploy.open_engine", lambda *_, **__: nullcontext((Planning(), None)))


@pytest.mark.usefixtures("planning")
def test_a_deployment_ends_with_the_import_and_its_failure_is_a_warning(
    account: StubbedAws, grafana: FakeGrafana
) -> None:
    with_token(account, grafana)
    code, _, err = run("deploy", "dev", "--yes")
    assert (code, len(grafana.dashboards)) == (Exit.GOOD, 8)
    assert "8 dashboards are in http" in err
    with_workspaces(account, grafana)
    account.refuse("grafana", "create_workspace_service_account", "AccessDeniedException")
    document = ended_json(Exit.GOOD, "deploy", "dev", "--yes")
    assert document["succeeded"] is True
    warning, _ = document["warnings"]
    assert "permission denied: CreateWorkspaceServiceAccount" in warning
    assert "hyperpod dashboards dev" in warning
    account.assert_all_asked()


@pytest.mark.usefixtures("planning")
def test_a_deployment_without_a_grafana_imports_nothing(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, aws)
    code, _, err = run("deploy", "dev", "--yes")
    assert (code, "ashboards" in err) == (Exit.GOOD, False)


def test_the_json_can_be_written_for_a_grafana_that_is_provisioned_from_files(tmp_path: Path) -> None:
    out, _ = ended(Exit.GOOD, "dashboards", "dev", "--write", str(tmp_path / "made"), "--json")
    files = [Path(page["url"]) for page in json.loads(out)["dashboards"]]
    assert {path.name for path in files} >= {"overview.json", "slurm.json"}
    assert "kubernetes.json" not in {path.name for path in files}
    assert {json.loads(path.read_text())["uid"] for path in files} == {f"hyperpod-{path.stem}" for path in files}
    (tmp_path / "file").write_text("")
    _, err = ended(Exit.BAD_INPUT, "dashboards", "dev", "--write", str(tmp_path / "file"))
    assert "cannot be written" in err
