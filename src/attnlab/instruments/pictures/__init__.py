"""Pictures that a finished network makes."""
