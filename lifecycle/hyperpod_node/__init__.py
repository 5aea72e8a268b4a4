"""The boot of a HyperPod node and its services: named steps, each bounded, timed and safe to run again.

Python 3.8 and its standard library only, and nothing is downloaded: a node boots without the internet.
"""
