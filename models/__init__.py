"""Defines Qwen2.5, Qwen3 and Llama in Flax, and reads and writes their weights.

Inputs: token ids, positions and segment ids; Hugging Face or PEFT folders, GGUF files.
Outputs: hidden states (not logits); a Hugging Face or PEFT folder.
Read `decoder` first; `tensors` converts its weights.
"""
