"""What ``dcgmi diag -j`` prints."""

import json


def diagnosis(*errors: tuple[int | None, int | None]) -> str:
    """DCGM 4's form: a result of each GPU, and a summary of each test. A warning makes both a "Fail", too.

    ``errors``: the first GPU's, by DCGM's number and severity.
    """
    warnings = [
        {"warning": "words", "error_id": one, "error_category": 8, "error_severity": how} for one, how in errors
    ]
    status = {"status": "Fail", "warnings": warnings} if errors else {"status": "Pass"}
    results = [
        {"entity_group": "GPU", "entity_id": 0, **status},
        {"entity_group": "GPU", "entity_id": 1, "status": status["status"]},
    ]
    test = {"name": "software", "results": results, "test_summary": status}
    document = {"test_categories": [{"category": "Deployment", "tests": [test]}], "metadata": {"version": "4.4.1"}}
    return json.dumps({"DCGM Diagnostic": document}, indent=2)
