"""Metrics: the workspaces that receive them."""
