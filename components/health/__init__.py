"""Node health: HyperPod's events, the checks that nodes run, and checks of the user's."""
