"""A node's facts: the stack's parameters, and its identity among the cluster's nodes."""
