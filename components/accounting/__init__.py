"""Slurm's accounting: the record of jobs, accounts and qualities of service."""
