"""Alerts: their rules, the selection for a stack, and the notifications."""
