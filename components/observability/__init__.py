"""Metrics: the workspaces that they go to."""
