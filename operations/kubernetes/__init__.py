"""What users of an EKS stack need: a kubeconfig, images, compute quotas."""
