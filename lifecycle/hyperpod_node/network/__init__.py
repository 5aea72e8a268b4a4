"""The network of jobs and pods: transport, environment variables, and who reaches instance metadata."""
