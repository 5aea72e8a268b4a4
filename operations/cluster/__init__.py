"""The nodes of a running cluster: changing, reaching, validating and measuring them."""
