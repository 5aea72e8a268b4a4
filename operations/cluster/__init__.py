"""The nodes of a running cluster: changing, connecting to, validating and benchmarking them."""
