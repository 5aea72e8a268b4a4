"""What people need of a cluster under EKS: a kubeconfig, images, compute shares."""
