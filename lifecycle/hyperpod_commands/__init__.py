"""The commands that people run on a cluster: tests of its network, a small training run, and a check of a node.

They use only Python 3.8's standard library. Their processes on the workers may use PyTorch, if a worker has it.
"""
