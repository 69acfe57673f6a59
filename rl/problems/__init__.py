"""Reads problems, orders them by a curriculum and encodes their prompts.

Input: JSONL files or a function that returns problems, a template and a tokenizer.
Output: `Problem` records in the order of a curriculum, and token ids of their prompts.
Start reading at `reading`. `audit` finds unreadable golds and repeated problems.
`arithmetic` generates sums and a base model without any download. `words` generates
word problems for a pretrained model.
"""
