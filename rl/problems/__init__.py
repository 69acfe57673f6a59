"""Reads problems, orders them and encodes their prompts. Start at `reading`."""
