"""Launch and supervise processes, and leave none behind."""
