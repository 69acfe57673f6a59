"""Reads text: the box of a completion, its tokens, its tree.

Begin with `answers.parse_answer`.
"""
