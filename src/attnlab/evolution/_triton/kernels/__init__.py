"""Code that Triton compiles. Names in capitals are known when it does."""
