"""Writes an HTML report of training runs, finished or running, from their workdirs."""
