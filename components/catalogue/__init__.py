"""Facts with their sources: CSV rows, and the types they are read into.

Nothing here creates a resource or calls AWS.
"""
