"""Slurm: its keys, its checks, and what it asks of the cluster."""
