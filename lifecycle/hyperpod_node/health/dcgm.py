"""Judges the output of ``dcgmi diag -j``, for the nodes' own check and for ``hyperpod diagnose --level``.

dcgmi's exit status does not help: it is not 0 for a warning either (DCGM 4, Diag.cpp: GetFailureResult).
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Mapping

from .model import Finding, bad, ok, unknown

# With -j, dcgmi writes "Fail" for a warning, too (DCGM 4, Diag.h: DDR_NO_DISPLAY_WARN). The severity of each error
# distinguishes them (dcgm_errors.h): 1, "can perform workload, but needs to be monitored", and 5, "can be configured",
# such as persistence mode.
WARNINGS = {1, 5}
# DCGM fails a row remap that is pending, by these errors of dcgm_errors.h. As in ``gpu.ecc`` it is no fault: "new
# workloads can be launched" (NVIDIA, "GPU Memory Error Management", "Error Recovery and Response Flags").
PENDING = {84, 85}


def judge(level: int, output: str) -> Finding:
    """Return the finding of ``dcgmi diag -r LEVEL -j`` from its output, with words before and after the JSON or
    without.
    """
    title = f"dcgmi diag -r {level}"
    try:
        document = json.JSONDecoder().raw_decode(output, output.index("{"))[0]
    except ValueError:
        said = [line.strip() for line in output.splitlines() if line.strip()]
        return unknown(f"{title} gave no JSON: {said[-1] if said else 'nothing'}")
    tests = [test for test in _below(document) if "name" in test]
    failed = {str(test["name"]): _only_warns(test) for test in tests if "fail" in _statuses(test)}
    wrong = sorted(name for name, warns in failed.items() if not warns)
    if wrong:
        return bad(f"{title} failed: {', '.join(wrong)}")
    if failed:
        return ok(f"{title} warns of: {', '.join(sorted(failed))}")
    count = sum(len(_statuses(test)) for test in tests)
    return ok(f"{title} gave {count} results") if count else unknown(f"{title} gave no results{_why(document)}")


def _below(node: Any) -> Iterator[Dict[str, Any]]:
    """Yield every object in a document. The versions of DCGM nest them differently."""
    if isinstance(node, dict):
        yield node
    for one in list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _below(one)


def _statuses(test: Mapping[str, Any]) -> List[str]:
    return [one["status"].lower() for one in _below(test) if isinstance(one.get("status"), str)]


def _only_warns(test: Mapping[str, Any]) -> bool:
    """Whether every error of a test leaves the GPU usable. Its summary has errors of no entity, or of another one."""
    errors = [one for one in _below(test) if "error_severity" in one]
    return bool(errors) and all(one["error_severity"] in WARNINGS or one.get("error_id") in PENDING for one in errors)


def _why(document: Any) -> str:
    """Return why the test could not run (DCGM 4, Diag.cpp: HelperDisplayFailureMessage)."""
    said = [str(one["runtime_error"]) for one in _below(document) if "runtime_error" in one]
    return f": {' '.join(said[0].split())}" if said else ""
