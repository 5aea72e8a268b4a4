"""Building blocks of keys: typed fields with the effect of a change, and the problems of a value."""
