"""Where arrays live: a mesh of devices, and the one table from names to its axes.

Enters: mesh sizes, and the logical axes that a model gives its arrays.
Leaves: a `Mesh`, and a sharding for each array.
Begin at `rules`.
"""
