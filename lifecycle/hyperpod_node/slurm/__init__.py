"""Slurm's daemons and configuration, on the controller and on workers."""
