"""Assigns arrays to devices: the device mesh, and rules from logical to mesh axes.

Inputs: the sizes of the mesh, and the logical axis names of a model's arrays.
Outputs: a `Mesh`, and a sharding for each array.
Read `rules` first.
"""
