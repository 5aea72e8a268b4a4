"""Node health: HyperPod's events, the checks on nodes, and the user's own checks."""
