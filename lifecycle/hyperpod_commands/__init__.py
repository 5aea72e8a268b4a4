"""The commands that people run on a cluster: tests of its network, a small training run, and a check of a node.

Python 3.8 and its standard library only. What they start on the workers may use PyTorch, where a worker has it.
"""
