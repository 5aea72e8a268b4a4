"""Pulumi's engine as the verbs see it: its commands and events, the state, and how long AWS takes for each resource."""
