"""The VPC with its subnets and endpoints, and the security groups."""
