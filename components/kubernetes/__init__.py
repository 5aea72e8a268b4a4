"""What only clusters under EKS have."""
