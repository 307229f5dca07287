"""Images a compiled pipeline names unless `podium compile` is told others."""

from podium.system.settings import STEPS_IMAGE, TRAINER_IMAGE

__all__ = ["STEPS_IMAGE", "TRAINER_IMAGE"]
