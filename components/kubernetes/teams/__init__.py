"""The teams of a Kubernetes cluster: their namespaces, directories, queues and quotas."""
