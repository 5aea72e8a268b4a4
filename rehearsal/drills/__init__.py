"""Fault drills: each breaks one thing of a stack on purpose, and judges what users are told, lose and clear up.

``account`` and ``drift`` break the deployment, in the embedded account; ``boots`` and ``nodes`` break simulated nodes.
"""
