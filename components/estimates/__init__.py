"""Derives from a configuration, before anything exists: its price, the quotas it needs, its VPC endpoints."""
