"""What a configuration implies before anything exists: its price, the quotas it needs, the endpoints it calls."""
