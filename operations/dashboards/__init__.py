"""Grafana dashboards of a stack: Python that writes them (``boards``), their JSON, and their import into a Grafana.

``generate`` needs Grafana's SDK, which is for development; the import needs only the JSON.
"""
