"""Writes an HTML report of training runs from their workdirs."""
