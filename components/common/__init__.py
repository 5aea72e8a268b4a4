"""Shared by every feature: the stack's names and context, IAM policies, YAML, time limits."""
