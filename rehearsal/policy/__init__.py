"""IAM policies for the people that deploy and operate a stack: `hyperpod policy`."""
