"""Parses text: the box of a completion, its tokens and its tree.

Start reading in `answers.parse_answer`.
"""
