"""The program in every pod and every trial: ``python -m podium.trainer``.

Reading order: config (flags), data, models, optimizer, recipe (schedule and averaging), loop (the training itself),
world and gradients (several ranks), checkpoint (resuming), output (the model directory).
"""
