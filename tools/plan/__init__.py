"""Compiles a run for accelerators that are not attached, and reports memory and time.

Modules in order of use: workload, search (optional), programs, compiling, hlo, report.
"""
