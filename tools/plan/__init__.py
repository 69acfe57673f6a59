"""Compiles a run for accelerators that are not attached, and reports memory and time.

config, target -> workload [-> search] -> programs -> compiling -> hlo -> report
"""
