"""The HyperPod cluster, and what it asks of an orchestrator."""
