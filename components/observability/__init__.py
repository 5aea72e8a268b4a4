"""Metrics: the workspaces they go to, and who is told when something is wrong."""
