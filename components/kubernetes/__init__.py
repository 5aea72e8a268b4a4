"""Components that only EKS stacks have."""
