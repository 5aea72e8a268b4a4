"""What a stack costs, and the quotas it needs."""
