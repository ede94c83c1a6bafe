"""Jobs: commands that run beside the cells, outlive them and their turns, and end with the session."""
