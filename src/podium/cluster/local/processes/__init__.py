"""Processes and their ends: launch, supervise, and leave nothing behind."""
