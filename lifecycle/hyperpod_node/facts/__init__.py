"""What a node knows: the stack's parameters, and which of the cluster's nodes it is."""
