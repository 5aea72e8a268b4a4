"""The IAM roles of the nodes."""
