"""Slurm: its keys, its checks, and its additions to the cluster."""
