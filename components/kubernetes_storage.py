"""Storage for pods."""

CLAIM_NAME = "fsx-claim"
