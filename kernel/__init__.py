"""The guest: what runs inside the user's IPython kernel. See ``launch.py`` for how it gets there."""
