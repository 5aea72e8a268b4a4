"""What nodes get: the lifecycle scripts, and the facts that these read."""
