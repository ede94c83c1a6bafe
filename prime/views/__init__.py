"""Views: read-only pictures of a log. Entries become values, values become text; nothing here writes."""
