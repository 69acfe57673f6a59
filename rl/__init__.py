"""Training, top to bottom: sample, judge, filter, pack, update, publish.

Enters: a config, a base model, problems.
Leaves: a workdir of metrics, checkpoints and the trained model.
Begin at `loop`; `train` is the command around it, `types` the data that flows.
"""
