"""The program in every pod and every trial: ``python -m podium.trainer``.

Reading order: config (flags), data, models, recipe (optimizer and schedule), loop (the training itself), world,
gradients and shared_memory (many processes), checkpoint (nothing is lost), output (what is left behind).
"""
