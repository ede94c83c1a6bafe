"""prime-repl: an agent whose only tool is a persistent IPython kernel."""
