"""People's accounts, homes, SSH keys and AWS credentials."""
