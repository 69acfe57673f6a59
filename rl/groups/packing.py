"""Packs prompts with completions into rows, and rows into micro-batches.

The loss of a mini-batch is a weighted sum over tokens, with the weights from `weigh`.
Packing, micro-batches and the mesh therefore change the gradient by rounding only.
"""

import collections
from collections.abc import Callable, Sequence
from typing import Literal, assert_never

import numpy as np
from jaxtyping import Int

from configs.base import RunConfig
from rl.groups.advantages import Advantages, compute_advantages
from rl.types import Batch, Group, Segment

Aggregation = Literal["token", "group", "sequence", "constant"]
# From the groups and the version of a step to added groups; see `rl.groups.extra`.
ExtraGroups = Callable[[Sequence[Group], int], list[tuple[Group, Advantages]]]


def pack_groups(
    groups: Sequence[Group],
    c: RunConfig,
    *,
    version: int,
    row_multiple: int,
    extra_groups: ExtraGroups | None = None,
) -> list[list[Batch]]:
    """Returns a step's mini-batches, each a list of micro-batches.

    A segment is one prompt with one completion. Tokens of another policy version are
    off-policy; tokens that vLLM sampled always are.
    A mini-batch has up to `prompts_per_update` entries of `groups`. The groups from
    `extra_groups` are added to the mini-batches in turn, beyond this limit. `version`
    is the policy version at the start of the step. `row_multiple` is the number of
    devices over which rows are split.
    """
    advantages = compute_advantages(groups, c.objective.advantage)
    extra = extra_groups(groups, version) if extra_groups else []
    mini_batches = []
    starts = range(0, len(groups), c.batch.prompts_per_update)
    for i, start in enumerate(starts):
        own = slice(start, start + c.batch.prompts_per_update)
        more = extra[i :: len(starts)]
        segments = []
        pairs = [*zip(groups[own], advantages[own], strict=True), *more]
        for index, (group, values) in enumerate(pairs):
            for completion, value in zip(group.completions, values, strict=True):
                stale = completion.versions != version
                ids = np.concatenate([group.prompt_ids, completion.token_ids])
                segments.append(
                    Segment(
                        group=index,
                        token_ids=ids,
                        prompt_length=len(group.prompt_ids),
                        sampler_logprobs=completion.sampler_logprobs,
                        off_policy=stale | (c.rollout.backend != "jax"),
                        stale=stale,
                        advantage=value,
                    )
                )
        packed = pack_segments(
            segments,
            row_lengths=c.batch.row_lengths,
            micro_tokens=c.batch.micro_tokens,
            row_multiple=row_multiple,
            share_prompts=c.batch.share_prompts,
        )
        longest = c.rollout.max_response_tokens
        mini_batches.append(weigh(packed, c.objective.aggregation, longest))
    return mini_batches


def best_fit(
    lengths: Sequence[int], capacity: int, groups: Sequence[int], prompts: Sequence[int]
) -> list[list[list[int]]]:
    """Assigns segments to rows of `capacity` positions, by best fit decreasing.

    Groups with the most tokens are placed first, and within a group the longest
    segments. If possible, a segment goes to a row that already holds its group. There
    it needs room only for its completion and one prompt token. Among several possible
    rows, the fullest is used. Raises ValueError if a segment exceeds `capacity`.

    Args:
      lengths: number of tokens of each segment.
      groups: number of each segment's group.
      prompts: number of prompt tokens of each segment.

    Returns:
      For each row a list of groups; a group is a list of segment indices.
    """
    if max(lengths, default=0) > capacity:
        raise ValueError(
            f"a prompt with its completion has {max(lengths)} tokens, but the longest"
            f" row has {capacity}; raise config.batch.row_lengths"
        )
    total: collections.Counter[int] = collections.Counter()
    for group, length in zip(groups, lengths, strict=True):
        total[group] += length
    order = sorted(
        range(len(lengths)), key=lambda i: (-total[groups[i]], groups[i], -lengths[i])
    )
    rows: list[dict[int, list[int]]] = []
    room: list[int] = []
    for index in order:
        group, whole = groups[index], lengths[index]
        alone = whole - prompts[index] + 1
        fits = [
            (group not in rows[row], free, row)
            for row, free in enumerate(room)
            if free >= (alone if group in rows[row] else whole)
        ]
        if fits:
            new, _, row = min(fits)
        else:
            new, row = True, len(rows)
            rows.append({})
            room.append(capacity)
        rows[row].setdefault(group, []).append(index)
        room[row] -= whole if new else alone
    return [list(row.values()) for row in rows]


def pack_segments(
    segments: Sequence[Segment],
    *,
    row_lengths: Sequence[int],
    micro_tokens: int,
    row_multiple: int,
    share_prompts: bool,
) -> list[Batch]:
    """Packs the segments of a mini-batch into micro-batches of equal shape.

    Args:
      row_lengths: allowed row lengths T. Among those that hold the longest segment, the
        one that needs the fewest positions in total is used.
      micro_tokens: maximum number of positions of a micro-batch, with padding. A
        micro-batch has at least `row_multiple` rows, even if these exceed the maximum.
      share_prompts: whether completions of a group share the prompt within a row.

    Returns:
      Micro-batches of NumPy arrays `[R, T]`, where R is a multiple of `row_multiple`.
      Their `loss_weights` are 0 (see `weigh`).
    """
    lengths = [len(s.token_ids) for s in segments]
    prompts = [s.prompt_length for s in segments]
    groups = [s.group if share_prompts else i for i, s in enumerate(segments)]
    fitting = [t for t in row_lengths if t >= max(lengths)] or [max(row_lengths)]
    packings = []
    for length in sorted(fitting):
        rows = best_fit(lengths, length, groups, prompts)
        per_micro = micro_rows(length, micro_tokens, row_multiple)
        starts = range(0, len(rows), per_micro)
        packings.append((len(starts) * per_micro * length, length, per_micro, rows))
    _, length, per_micro, rows = min(packings, key=lambda packing: packing[0])
    batches = []
    for start in range(0, len(rows), per_micro):
        batch = Batch.padding(per_micro, length)
        _fill(batch, rows[start : start + per_micro], segments)
        batches.append(batch)
    return batches


def micro_rows(length: int, micro_tokens: int, row_multiple: int) -> int:
    """Returns the number of rows of a micro-batch; see `pack_segments`."""
    return max(1, micro_tokens // (length * row_multiple)) * row_multiple


def padding_fraction(batches: Sequence[Batch]) -> float:
    filled = sum(int((b.segment_ids != 0).sum()) for b in batches)
    return 1 - filled / sum(b.segment_ids.size for b in batches)


def _fill(batch: Batch, rows, segments) -> None:
    for row, sharing in enumerate(rows):
        start, number = 0, 0
        for members in sharing:
            shared = prefix = 0
            if len(members) > 1:
                # Each completion keeps its own copy of the prompt's last token, whose
                # hidden state predicts the completion's first token.
                first = segments[members[0]]
                shared = first.prompt_length - 1
                prefix = number = number + 1
                at = row, slice(start, start + shared)
                batch.token_ids[at] = first.token_ids[:shared]
                batch.positions[at] = np.arange(shared)
                batch.segment_ids[at] = prefix
                start += shared
            for index in members:
                segment = segments[index]
                number += 1
                stop = start + len(segment.token_ids) - shared
                own = row, slice(start, stop)
                tail = row, slice(start + segment.prompt_length - shared, stop)
                batch.token_ids[own] = segment.token_ids[shared:]
                batch.positions[own] = np.arange(shared, len(segment.token_ids))
                batch.segment_ids[own] = number
                batch.prefix_ids[own] = prefix
                batch.group_ids[tail] = segment.group
                batch.loss_mask[tail] = True
                batch.advantages[tail] = segment.advantage
                batch.sampler_logprobs[tail] = segment.sampler_logprobs
                batch.off_policy[tail] = segment.off_policy
                batch.stale[tail] = segment.stale
                start = stop


def weigh(
    mini_batch: Sequence[Batch], aggregation: Aggregation, constant: int
) -> list[Batch]:
    """Returns the micro-batches with their `loss_weights`.

    All micro-batches hold NumPy arrays of one shape. A token's weight depends on the
    aggregation:

    * token: 1 / number of tokens (DAPO, verl)
    * group: 1 / (groups * tokens of the group), the literal formula of the
      Compass-Thinker paper
    * sequence: 1 / (completions * tokens of the completion) (GRPO)
    * constant: 1 / (completions * `constant`), where `constant` is the maximum length
      of a completion (Dr. GRPO)

    Only tokens in `loss_mask` count, and only groups and completions with such tokens.
    """
    mask = np.stack([batch.loss_mask for batch in mini_batch])
    group = np.stack([batch.group_ids for batch in mini_batch])[mask]
    completion = number_completions(mini_batch)[mask]
    in_group = np.bincount(group).astype(np.float64)
    in_completion = np.bincount(completion).astype(np.float64)
    sequences = max(int(np.count_nonzero(in_completion)), 1)
    weights = np.zeros(mask.shape, np.float32)
    if aggregation == "token":
        weights[mask] = 1 / max(len(group), 1)
    elif aggregation == "group":
        weights[mask] = 1 / (np.count_nonzero(in_group) * in_group[group])
    elif aggregation == "sequence":
        weights[mask] = 1 / (sequences * in_completion[completion])
    elif aggregation == "constant":
        weights[mask] = 1 / (sequences * constant)
    else:
        assert_never(aggregation)
    return [
        batch.replace(loss_weights=of_batch)
        for batch, of_batch in zip(mini_batch, weights, strict=True)
    ]


def number_completions(mini_batch: Sequence[Batch]) -> Int[np.ndarray, "N R T"]:
    """Returns for each token the id of its completion, unique in the mini-batch.

    Padding, and prompts that several completions share, have ids of their own.
    """
    ids = np.stack([batch.segment_ids for batch in mini_batch])
    rows = np.arange(len(ids) * ids.shape[1]).reshape(*ids.shape[:2], 1)
    return rows * (ids.max(initial=0) + 1) + ids
