"""What a configuration implies before anything exists: its price, the quotas it needs, its VPC endpoints."""
