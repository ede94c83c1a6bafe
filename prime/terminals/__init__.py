"""Terminals: programs that want a keyboard and a screen, run beside the cells."""
