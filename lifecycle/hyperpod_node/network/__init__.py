"""The network of jobs and pods: transport, environment variables, and access to instance metadata."""
