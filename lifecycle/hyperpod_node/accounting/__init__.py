"""Slurm's accounting on the controller: its database, the copies of it, accounts and limits."""
