"""Packing at the size of a 7B step: padding, time, attention; prompts shared or not."""

import argparse
import time

import jax.numpy as jnp
import numpy as np

from models.attention_kernels import MOSAIC_BLOCKS, TRITON_BLOCKS, Blocks
from models.block_attention import visits
from rl.batches.packing import pack, padding_fraction
from rl.types import Batch, Segment

KERNELS = {"mosaic": MOSAIC_BLOCKS, "triton": TRITON_BLOCKS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--groups", type=int, default=32, help="of one update")
    parser.add_argument("--group_size", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=150, help="median tokens")
    parser.add_argument("--completion", type=int, default=700, help="median tokens")
    parser.add_argument("--max_completion", type=int, default=3072)
    parser.add_argument("--row_length", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=28, help="of queries")
    parser.add_argument("--head_width", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)


def run(arguments: argparse.Namespace) -> dict:
    """Packs log-normal completions with p95/median = 4."""
    segments = _segments(arguments)
    tokens = sum(len(s.token_ids) for s in segments)
    result = {"segments": len(segments), "tokens": tokens}
    for name, share_prompts in (("plain", False), ("shared_prompts", True)):
        began = time.perf_counter()
        batches = pack(
            segments,
            row_lengths=(arguments.row_length,),
            micro_tokens=arguments.row_length,
            row_multiple=1,
            share_prompts=share_prompts,
        )
        result[name] = {
            "rows": len(batches),
            "positions": int(sum((b.segment_ids > 0).sum() for b in batches)),
            "padding": padding_fraction(batches),
            "seconds": time.perf_counter() - began,
            "attention_gflop": {
                kernel: _gigaflops(batches, blocks, arguments)
                for kernel, blocks in KERNELS.items()
            },
        }
    return result


def _gigaflops(batches: list[Batch], blocks: Blocks, a: argparse.Namespace) -> float:
    """Of the blocks that a kernel visits in one layer's forward pass."""
    ids, prefixes = (
        jnp.concatenate([getattr(b, name) for b in batches])
        for name in ("segment_ids", "prefix_ids")
    )
    (_, count), _ = visits(ids, prefixes, blocks.q, blocks.k)
    # Scores and what they mix: two products, each of a multiplication and an addition.
    return float(count.sum()) * blocks.q * blocks.k * a.head_width * a.heads * 4 / 1e9


def _segments(a: argparse.Namespace) -> list[Segment]:
    rng = np.random.default_rng(a.seed)
    segments = []
    for group in range(a.groups):
        prompt = int(np.clip(rng.lognormal(np.log(a.prompt), 0.4), 2, 1024))
        drawn = rng.lognormal(np.log(a.completion), np.log(4) / 1.645, a.group_size)
        for length in np.clip(drawn, 1, a.max_completion).astype(int):
            segments.append(
                Segment(
                    group=group,
                    token_ids=rng.integers(1, 1000, prompt + length).astype(np.int32),
                    prompt_length=prompt,
                    sampler_logprobs=np.zeros(length, np.float32),
                    off_policy=np.zeros(length, bool),
                    stale=np.zeros(length, bool),
                    advantage=1.0,
                    loss_weight=1.0,
                )
            )
    return segments
