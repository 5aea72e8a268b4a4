"""HyperPod on Pulumi: the ComponentResources and the typed configuration they are built from."""
