"""What every feature uses: the stack's names and context, IAM policies, YAML, time limits."""
