"""Measures the speeds and accuracies that the documentation quotes.

`python -m tools.bench NAME` runs the submodule NAME: `add_arguments(parser)` adds its
flags, and `run(arguments)` returns the result. The command prints the result as JSON;
--json also writes it to a file.
"""
