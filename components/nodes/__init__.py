"""The nodes' inputs: the lifecycle scripts, and the facts that these read."""
