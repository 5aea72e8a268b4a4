"""Runs a fleet through promtool, and reads which alerts fire when."""

import json
import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.metrics.fleet import Fleet

Labels = frozenset[tuple[str, str]]


def answers(rules: str, fleet: Fleet, queries: Sequence[tuple[str, int]]) -> list[dict[Labels, float]]:
    """What each query gives at its minute, when these rules are evaluated over the fleet's series.

    promtool only compares. So it is told to expect nothing, and says what it got instead.
    """
    tests = [
        {"expr": f"{query} and on () vector(1) or on () vector({number}) * 0", "eval_time": f"{minute}m"}
        for number, (query, minute) in enumerate(queries)
    ]
    series = [{"series": _text(name, labels), "values": values} for (name, labels), values in fleet.series.items()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rules.yaml")
        path.write_text(rules)
        test = {
            "rule_files": [str(path)],
            # Rules on EKS read what other rules recorded, and rates need two samples in 5 minutes.
            "evaluation_interval": "2m" if fleet.orchestrator == "eks" else "4m",
            "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": tests}],
        }
        Path(folder, "test.yaml").write_text(json.dumps(test))
        done = subprocess.run(
            ["promtool", "test", "rules", str(Path(folder, "test.yaml"))],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    got = re.findall(r"^ +got: ?(.*)$", done.stdout + done.stderr, re.MULTILINE)
    assert len(got) == len(queries), (done.stdout + done.stderr)[:5000]
    return [_samples(text) for text in got]


def _text(name: str, labels: Labels) -> str:
    return f"{name}{{{','.join(f'{key}={json.dumps(value)}' for key, value in sorted(labels))}}}"


def _samples(text: str) -> dict[Labels, float]:
    """``{a="b"} 1E+00, {a="c"} 2E+00``, without the 0 that stands for nothing."""
    found = {}
    for labels, value in re.findall(r"\{([^}]*)\} (\S+?)(?:,|$)", text):
        pairs = frozenset(re.findall(r'(\w+)="([^"]*)"', labels))
        if pairs:
            found[pairs] = float(value)
    return found


def firing(rules: str, fleet: Fleet, every: int = 4) -> Mapping[str, Mapping[int, set[Labels]]]:
    """Which alerts fire at which minutes, with the labels that say where."""
    minutes = range(0, fleet.time.minutes + 1, every)
    found: dict[str, dict[int, set[Labels]]] = defaultdict(dict)
    for minute, got in zip(
        minutes, answers(rules, fleet, [('ALERTS{alertstate="firing"}', minute) for minute in minutes]), strict=True
    ):
        for labels in got:
            where = dict(labels)
            name = where.pop("alertname")
            for label in ("__name__", "alertstate", "severity"):
                where.pop(label, None)
            found[name].setdefault(minute, set()).add(frozenset(where.items()))
    return found
