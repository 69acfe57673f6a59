"""Shows that two answers mean the same, within a budget of steps.

Begin with `compare.same_answer`.
"""
