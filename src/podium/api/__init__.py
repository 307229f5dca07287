"""podium from Python: what ``import podium`` offers, and what the commands of the same names call.

Functions begin something and return an object that shows itself in a notebook: a Sweep, a Run, a Training, a Model.
"""
