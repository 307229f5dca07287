"""The program in every pod and every trial: ``python -m podium.trainer``. In reading order:

- ``__main__``: read the flags, connect to the other ranks, train or resume, write the model
  directory
- ``loop``: the training itself: steps, evaluation, the best weights so far

What a step is made of:

- ``config``: the flags; ``networks``: names of networks and the recipe of each
- ``task``: what is learned from a dataset; ``data``: its parts on the device, batches, each rank's
  share
- ``augment``: changes of training images
- ``models``: the networks; ``weights``: to start from; ``seen``: what they have seen
- ``objective``: loss and metrics of classes and of numbers
- ``folds``: cross-validation
- ``tabular``: models of scikit-learn in place of a network, without torch: ``trees``,
  ``linear``, and what these share, ``fitted``
- ``optimizer``: the step, its learning rate, and averaged weights

What is around it:

- ``world``: the ranks, whether the others still live, what they send each other, and the sum of
  their gradients; ``ranks``: which rank this is, and where they meet
- ``processor``: threads, memory, precision
- ``checkpoint``: resume, and inherit from another training
- ``output``: the model directory; ``onnx_graph``: model.onnx
- ``tracking``: W&B, MLflow, TensorBoard; ``trainjob_status``: progress in a TrainJob's status
- ``kit``: helpers for a trainer of one's own
"""
