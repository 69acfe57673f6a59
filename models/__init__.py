"""Qwen2.5, Qwen3 and Llama in Flax, their weights in and out of Hugging Face folders.

Enters: token ids and segments, or a folder of safetensors, or a GGUF file.
Leaves: hidden states (never logits), or such a folder again.
Begin at `decoder`; names and shapes of weights are the table of `hf`.
"""
