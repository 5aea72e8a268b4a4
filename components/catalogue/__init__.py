"""Facts with their sources: CSV rows, and the types that hold them.

Nothing here creates a resource or calls AWS.
"""
