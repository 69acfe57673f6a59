"""What a run's folder says of the run.

Enters: a plan, what earlier starts left in the workdir, a step's figures and tokens.
Leaves: manifest.json, or a refusal; records, event files, traces; what an export says.
Begin at `manifest`; `export` is the other end of a run.
"""
