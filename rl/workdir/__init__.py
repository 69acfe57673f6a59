"""Makes files of a workdir: manifest, examples, dumps and others.

Read `manifest` first: it decides whether a command may resume the run in a workdir.
"""
