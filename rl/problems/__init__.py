"""What is asked: problems, their order and their prompts.

Enters: JSONL rows or a function's problems, a template, a tokenizer's folder.
Leaves: `Problem`s in the order of a curriculum, and each prompt's token ids.
Begin at `reading`; `arithmetic` makes problems and a base model without a download,
`words` makes word problems for a real one.
"""
