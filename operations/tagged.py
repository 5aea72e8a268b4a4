"""What carries a stack's tags, as the Resource Groups Tagging API has it."""

from __future__ import annotations

from collections.abc import Iterator

from components.names import CLUSTER_ID_TAG

from .target import Target


def arns(target: Target, key: str = CLUSTER_ID_TAG, value: str = "") -> Iterator[str]:
    """ARNs of what carries this tag, without a value the stack's own. May lag: also of what is deleted already."""
    wanted = [{"Key": key, "Values": [value or target.names.cluster_id]}]
    for one in target.aws.pages(
        "resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", TagFilters=wanted
    ):
        yield str(one["ResourceARN"])
