"""Writes the files of a workdir: manifest, events, examples, traces, dumps, exports.

Read `manifest` first: it decides whether a start may continue the run of a workdir.
"""
