"""Grafana dashboards of a stack: Python that builds them (``boards``), and their import into a Grafana."""
