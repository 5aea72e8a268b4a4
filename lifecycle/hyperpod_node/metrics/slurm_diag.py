"""The scheduler's figures in ``sdiag``, under slurmctld's own names for them."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Tuple

from .exposition import Family, one

# Section (the beginning of its heading, none for the first lines) and line, to the metric. Cycles in microseconds.
LINES: Mapping[Tuple[str, str], str] = {
    ("", "Server thread count"): "slurm_server_thread_cnt",
    ("", "Agent queue size"): "slurm_agent_queue_size",
    ("", "Agent count"): "slurm_agent_cnt",
    ("", "Agent thread count"): "slurm_agent_thread_cnt",
    ("", "DBD Agent queue size"): "slurm_slurmdbd_queue_size",
    ("", "Jobs submitted"): "slurm_sdiag_jobs_submitted",
    ("", "Jobs started"): "slurm_sdiag_jobs_started",
    ("", "Jobs completed"): "slurm_sdiag_jobs_completed",
    ("", "Jobs canceled"): "slurm_sdiag_jobs_canceled",
    ("", "Jobs failed"): "slurm_sdiag_jobs_failed",
    ("", "Jobs pending"): "slurm_sdiag_jobs_pending",
    ("", "Jobs running"): "slurm_sdiag_jobs_running",
    ("Main schedule statistics", "Last cycle"): "slurm_schedule_cycle_last",
    ("Main schedule statistics", "Max cycle"): "slurm_schedule_cycle_max",
    ("Main schedule statistics", "Mean cycle"): "slurm_sched_mean_cycle",
    ("Main schedule statistics", "Total cycles"): "slurm_schedule_cycle_cnt",
    ("Main schedule statistics", "Last queue length"): "slurm_schedule_queue_len",
    ("Backfilling stats", "Total backfilled jobs (since last slurm start)"): "slurm_backfilled_jobs",
    ("Backfilling stats", "Last cycle"): "slurm_bf_cycle_last",
    ("Backfilling stats", "Max cycle"): "slurm_bf_cycle_max",
    ("Backfilling stats", "Mean cycle"): "slurm_bf_mean_cycle",
    ("Backfilling stats", "Total cycles"): "slurm_bf_cycle_cnt",
    ("Backfilling stats", "Last depth cycle"): "slurm_bf_last_depth",
    ("Backfilling stats", "Last queue length"): "slurm_bf_queue_len",
    ("Backfilling stats", "Last table size"): "slurm_bf_table_size",
}


def parse_diag(text: str) -> List[Family]:
    """The known lines of ``sdiag``."""
    found: Dict[str, int] = {}
    section = ""
    for line in text.splitlines():
        pair = re.fullmatch(r"\s*(.+?):\s+([0-9]{1,18})\s*", line, re.ASCII)
        if pair:
            metric = LINES.get((section, pair.group(1)))
            if metric:
                found.setdefault(metric, int(pair.group(2)))
        # In brackets, sdiag warns of figures that it has taken in the middle of a cycle.
        elif (heading := line.split(" (")[0]) and not heading[0].isspace() and ": " not in heading:
            section = heading.strip(" :*")
    return [one(metric, f"{key} of sdiag", found[metric]) for (_, key), metric in LINES.items() if metric in found]
