"""Compiles a run for accelerators that are not attached, and reports memory and time.

The modules in order of use: workload, search, programs, compiling, hlo, report.
"""
