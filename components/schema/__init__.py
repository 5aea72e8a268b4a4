"""What keys are made of: typed fields with the effect of a change, and the problems of a value."""
