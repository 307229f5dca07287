"""The program in every pod and every trial: ``python -m podium.trainer``.

Reading order: config (flags), data, models, recipe (optimizer and schedule), loop (the training itself), world and
exchange (many processes; in_memory on one machine), checkpoint (nothing is lost), output (what is left behind).
"""
