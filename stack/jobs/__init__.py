"""Training jobs for Kubernetes: what the catalogue of jobs has, rendered for a stack, checked and submitted."""
