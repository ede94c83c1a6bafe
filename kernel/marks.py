"""The environment variables by which the host finds what a session and what one of its kernels has started."""

SESSION, FOLDER = "PRIME_SESSION", "IPYTHONDIR"
