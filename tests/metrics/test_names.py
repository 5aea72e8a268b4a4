"""The tables of what exporters give, and the check that reads expressions against them."""

import pytest

from tests.metrics.names import FOLDER, problems, published, rows


def test_every_table_names_its_source() -> None:
    tables = {path.name for path in (FOLDER / "published").iterdir()} - {"sources.csv"}
    sources = {row["file"]: row["what_it_is_from"] for row in rows(FOLDER / "published" / "sources.csv")}
    assert set(sources) == tables
    assert all(sources.values())


def test_the_tables_hold_what_rules_rest_on() -> None:
    known = published()
    assert len(known) > 300
    assert "hpc_job" in known["DCGM_FI_DEV_GPU_UTIL"]
    assert {"device", "port"} <= known["node_amazonefa_rx_drops"]
    assert known["slurm_partition_jobs_pending"] == {"partition"}
    assert "rank" in known["hyperpod_training_step"]


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        ("DCGM_FI_DEV_GPU_UTILS > 0", ["no exporter gives DCGM_FI_DEV_GPU_UTILS"]),
        ('sum({__name__=~"node_amazonefa_(rx_drops|rx_dropz)"})', ["no exporter gives node_amazonefa_rx_dropz"]),
        ('node_load1{instance="x"} > 1', ["node_load1 has no label instance"]),
        ("sum by (gpu, node) (rate(node_vmstat_oom_kill[5m]))", ["nothing below has the label gpu"]),
        ("up * on (node, rack) node_load1", ["nothing below has the label rack"]),
        ("up * on (node) group_left (device) node_load1", ["nothing below has the label device"]),
        ('sum by (cluster, node, gpu) (rate(DCGM_FI_DEV_POWER_VIOLATION{hpc_job!=""}[5m]))', []),
        ('sum by (node) (label_replace(DCGM_FI_DEV_GPU_UTIL{cluster_name="x"}, "node", "$1", "Hostname", "(.*)"))', []),
        ('count_values by (node) ("xid", DCGM_FI_DEV_XID_ERRORS)', []),
    ],
)  # fmt: skip
def test_an_expression_may_name_only_what_exists(expr: str, said: list[str]) -> None:
    assert sorted(problems(expr)) == sorted(said)
