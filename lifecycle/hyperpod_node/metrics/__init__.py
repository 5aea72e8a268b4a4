"""What a node tells of itself: exporters, a writer of what they lack, and the collector that sends it all.

One contract of names and labels: every series has ``cluster``, ``node`` and ``group`` (docs/metrics.md).
"""
