"""Measures the speeds and accuracies that the documentation quotes.

`python -m tools.bench NAME` runs the submodule NAME. `add_arguments(parser)` adds its
flags. The result of `run(arguments)` is printed; --json also writes it to a file.
"""
