"""Checks of a node's health, and the consequences for a bad node.

A check is a function of the node (``model.Subject``) that returns a ``model.Finding``, and changes nothing. One list of
them (``checks.py``) serves Slurm's HealthCheckProgram and, on EKS, a systemd timer whose result node-problem-detector
reads. HyperPod's own agent acts on the faults that it sees; these checks find others.
"""
