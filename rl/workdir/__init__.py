"""Makes files of a workdir: manifest, events, examples, traces, dumps, exports.

Read `manifest` first: it decides whether a command may resume the run in a workdir.
"""
