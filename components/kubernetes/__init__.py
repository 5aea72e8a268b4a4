"""What only EKS stacks have."""
