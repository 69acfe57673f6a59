"""Measures the speeds and accuracies that the documentation quotes.

`python -m tools.bench NAME` runs the submodule NAME, which defines two functions:
`add_arguments(parser)` adds its flags, and `run(arguments)` returns the result.
"""
