"""Makes files of a workdir: manifest, TensorBoard events, examples, dumps and others.

Read `manifest` first: it decides whether a command may resume the run in a workdir.
"""
