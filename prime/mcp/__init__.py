"""Servers of the Model Context Protocol, whose tools cells can call."""
