"""Files of a workdir: manifest, event files, examples, traces, dumps, exports.

Begin at `manifest`, which decides whether a start continues the run of a workdir.
"""
