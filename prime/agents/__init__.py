"""What an agent does with models and agents beside its own conversation: the namespace ``agents``."""
