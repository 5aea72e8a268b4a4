"""Checks of a node's health: what they find, and what is done about a node that is bad.

A check is a function of the node (``model.Subject``) that returns a ``model.Finding``, and changes nothing. One list of
them (``checks.py``) serves Slurm's HealthCheckProgram and, on EKS, a systemd timer whose result node-problem-detector
reads. HyperPod's own agent acts on what it sees itself; these checks see what it does not.
"""
