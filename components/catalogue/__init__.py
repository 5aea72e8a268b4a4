"""Facts with their sources: CSV rows, and the types they are read into. Nothing here makes a resource or asks AWS."""
