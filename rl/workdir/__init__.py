"""What a run's folder says of the run.

Enters: a plan, and what earlier starts left in the workdir.
Leaves: manifest.json; or a refusal to let the run become another; what an export says.
Begin at `manifest`; `export` is the other end of a run.
"""
