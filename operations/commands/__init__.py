"""The verbs: each is a thin shell over the functions in the neighbouring folders."""
