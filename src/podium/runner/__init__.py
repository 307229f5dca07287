"""``podium run``: a pipeline on this machine."""
