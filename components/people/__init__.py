"""The people of a Slurm cluster, who have accounts on every node."""
