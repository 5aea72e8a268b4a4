"""Training jobs for Kubernetes: the jobs of ``jobs/eks``, rendered for a stack, checked and submitted."""
