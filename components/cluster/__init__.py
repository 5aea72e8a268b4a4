"""The HyperPod cluster, and its requirements for an orchestrator."""
