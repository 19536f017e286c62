"""attnlab: attention as step size."""
