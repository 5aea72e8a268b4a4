"""What a HyperPod node does when it is created: named steps, each bounded, timed and safe to run again.

Python 3.8 and its standard library only, and nothing is downloaded: a node boots without the internet.
"""
