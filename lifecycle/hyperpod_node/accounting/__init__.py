"""Slurm's accounting on the controller: its database, what is kept of it elsewhere, accounts and limits."""
