"""The verbs: each a thin shell over the functions beside this folder."""
