"""Defines every key of a config: its type, range, default and meaning.

Other config files start from `get_config` and change a few keys.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from ml_collections import ConfigDict, FieldReference

from configs.schema import (
    Count,
    Decay,
    Index,
    NotNegative,
    Positive,
    Range,
    Section,
    Share,
    flatten,
    parse,
)

DType = Literal["bfloat16", "float16", "float32"]
AlarmName = Literal[
    "truncated", "unjudged", "no_signal", "repeated", "entropy_low", "entropy_high",
    "sampler_gap", "stuck_reward", "skipped_updates", "not_finite",
]  # fmt: skip


class Lora(Section):
    """Trains low-rank adapters on a frozen base model; see docs/lora.md."""

    rank: Index = 0  # rank of the adapters; 0 trains all parameters instead
    alpha: Positive = 32.0  # the product of A and B is multiplied by alpha / rank
    targets: Literal["attention", "mlp", "all"] = "all"  # kernels that have adapters
    init_seed: Index = 0  # random seed of the adapters' A matrices; B starts at 0


class Model(Section):
    path: str = ""  # base model: a Hugging Face folder, or OWNER/NAME[@REVISION]
    maker: str = ""  # instead of path: "module:function" that returns the folder
    maker_args: Mapping[str, Any] = field(default_factory=dict)  # arguments of maker
    dtype: DType = "bfloat16"  # dtype of activations and matrix products
    # Precision of matrix products on accelerators if dtype is float32. default is TF32
    # on GPUs and one bfloat16 pass on TPUs; highest is float32.
    matmul_precision: Literal["default", "high", "highest"] = "highest"
    # Dtype of the trained parameters; adapters are always float32. At a learning rate
    # of 1e-6, most updates are too small to change a bfloat16 parameter.
    param_dtype: DType = "float32"
    # The backward pass recomputes nothing (none), everything in a layer except the
    # results of matrix products (dots), or everything in a layer (full).
    remat: Literal["none", "dots", "full"] = "full"
    # Kernel: triton for GPUs, splash for TPUs, xla, or auto by platform and dtype.
    attention: Literal["auto", "xla", "triton", "splash"] = "auto"
    head_chunk: Count = 1024  # tokens per device whose logits are computed at a time
    lora: Lora = Lora()


class Mesh(Section):
    """Sets the device mesh of the trainer.

    The product of data, fsdp and tensor is the number of devices. One of the three may
    be -1: it is then computed from the other two.
    """

    data: int = 1  # copies of the parameters; each computes a part of the batch
    fsdp: int = -1  # devices that split the parameters and the batch
    tensor: int = 1  # devices that split attention heads, MLP width and vocabulary
    offload_optimizer: bool = False  # optimizer state is in host memory between updates
    # Virtual devices on a CPU. 0: JAX_NUM_CPU_DEVICES, or else the largest divisor of a
    # micro-batch's rows that is at most the number of cores.
    cpu_devices: Index = 0


class Data(Section):
    # Training problems: JSONL files separated by commas, each a local path or
    # hf://OWNER/DATASET@REVISION/FILE; or "module:function" that returns the problems.
    train: str = ""
    train_args: Mapping[str, Any] = field(default_factory=dict)  # function's arguments
    # Held-out problems in the forms of data.train, or several sets by name, such as
    # {"math500": "a.jsonl", "aime2024": "b.jsonl"}. Accuracy on the first set decides
    # which checkpoint is the best. Empty: no evaluation.
    eval: str | Mapping[str, str] = ""
    # Arguments if data.eval is a function; with several sets, the arguments by set.
    eval_args: Mapping[str, Any] = field(default_factory=dict)
    # Columns of the files by field, where the names differ: {"problem": "question"}.
    fields: Mapping[str, str] = field(default_factory=dict)
    # Largest share of problems that may be dropped because the verifier cannot read the
    # reference answer or the tokenizer loses characters of the prompt.
    unreadable: Share = 0.01
    # Prompt template: qwen_math, r1, none, or a text with {problem} in it. model is the
    # tokenizer's chat template; model:{"enable_thinking": false} passes it arguments.
    template: str = "qwen_math"


class Advance(Section):
    """Ends a stage of the curriculum early."""

    # Share of correct completions, or of groups that are all correct.
    metric: Literal["accuracy", "solve_all"]
    at_least: Annotated[float, Range(0, 1, open=True)]  # threshold of the pooled metric
    window: Count  # number of last steps to pool; with fewer, the stage continues


class Stage(Section):
    """Sets a stage of the curriculum; see docs/sampling.md.

    Settings from max_response_tokens on replace those of the run, if they are set.
    """

    name: str
    levels: Mapping[Any, float] | None = None  # shares; None: all problems equally
    steps: Count | None = None  # maximum number of steps with an update; None: no limit
    advance: Advance | None = None  # rule that may end the stage earlier
    max_response_tokens: Count | None = None
    group_size: Annotated[int, Range(2)] | None = None
    temperature: Positive | None = None  # for sampling and log-probabilities
    eps_high: Positive | None = None
    learning_rate: Positive | None = None  # peak of the learning-rate schedule


class Curriculum(Section):
    stages: tuple[Stage, ...] = ()  # in order; empty: one stage with all problems


class Vllm(Section):
    """Configures the vLLM servers; see docs/vllm.md.

    If the servers need an API key, set VLLM_API_KEY in the environment.
    """

    python: str = ".venv-vllm/bin/python"  # Python with vLLM; runs the servers
    url: str = ""  # URLs of running servers to use instead, separated by commas
    # GPUs of the started servers: "0;1" is two servers with one GPU each, "0,1;2,3" two
    # servers with two GPUs each. Empty: one server on each GPU that JAX does not use.
    devices: str = ""
    dtype: Literal["", DType] = ""  # dtype of the served weights; empty: model.dtype
    # Completions that one server decodes at the same time.
    max_num_seqs: Annotated[int, Range(2)] = 256
    # Share of the GPU memory for vLLM; 0 means 0.9. Required if JAX uses the same GPU.
    gpu_memory_utilization: Share = 0.0
    enforce_eager: bool = False  # no CUDA graphs: starts sooner, decodes more slowly
    # Directory through which the servers receive weights; empty: /dev/shm, or WORKDIR
    # if /dev/shm is too small.
    weight_dir: str = ""
    # merged sends the servers all weights; adapter only sends those of model.lora.
    publish: Literal["merged", "adapter"] = "merged"
    # Largest allowed mean difference between the log-probabilities of servers and
    # trainer on a probe text after a publish, in nats; 0: a default for the dtype.
    probe_tolerance: NotNegative = 0.0


class Rollout(Section):
    # jax samples in the trainer's process; vllm samples on servers (rollout.vllm).
    backend: Literal["jax", "vllm"] = "jax"
    # When a batch is sampled. sync: before its update. one_step_off: during the update
    # of the step before. async: up to max_staleness versions ahead. The last two need
    # the vllm backend.
    schedule: Literal["sync", "one_step_off", "async"] = "sync"
    # async: most policy versions between the start of sampling a batch and its update.
    max_staleness: Count = 2
    group_size: Annotated[int, Range(2)] = 16  # G, completions per prompt
    # Temperature of sampling, and of the log-probabilities in the loss.
    temperature: Positive = 1.0
    max_prompt_tokens: Count = 1024  # problems with longer prompts are left out
    max_response_tokens: Count = 3072  # longer completions are truncated
    # Ids of the tokens that end a completion; empty: the model's end tokens.
    stop_token_ids: tuple[Index, ...] = ()
    slots: Count = 256  # completions that the jax backend decodes at the same time
    # jax: devices per copy of the sampler's weights; 0: the fewest with enough memory.
    tensor: Index = 0
    # "module:function" that adds groups to a step; see docs/extending.md.
    extra_groups: str = ""
    vllm: Vllm = Vllm()


class Sampling(Section):
    """Selects the problems that are sampled; see docs/sampling.md."""

    # uniform samples all problems that the curriculum offers. signal skips most
    # problems whose completions are likely to be all right or all wrong.
    policy: Literal["uniform", "signal"] = "uniform"
    # signal: the smallest probability of sampling a problem that is offered.
    explore: Annotated[float, Range(0, 1, open=True)] = 0.05
    # signal: steps after which a verdict counts half in the estimated solve rate.
    half_life: Positive = 200.0


class DynamicSampling(Section):
    """Samples in rounds until a batch is full of groups that give a gradient."""

    filter: bool = True  # drop the groups that filter_on names
    # correct drops groups that are all right or all wrong; reward drops groups with
    # equal rewards. auto means correct if the first term of reward.function is the
    # verifier or if sampling.policy is signal; otherwise it means reward.
    filter_on: Literal["auto", "correct", "reward"] = "auto"
    max_rounds: Count = 8  # largest number of sampling rounds per step
    # Largest number of prompts in a round, as a multiple of batch.prompts_per_step.
    # With carry, a multiple of the prompts that the round is expected to need.
    oversample: Annotated[float, Range(1)] = 2.0
    # Steps for which a surplus group may wait until it is trained on; steps without an
    # update do not count. With carry it may wait one step longer.
    max_age: Index = 1
    # Enough groups end a round; unfinished completions continue in the next step.
    carry: bool = False
    # If a batch is not full after max_rounds: skip the update, train on the partial
    # batch, or stop the run. Five skipped steps in a row end the run.
    on_shortfall: Literal["skip", "partial", "stop"] = "skip"


class Reward(Section):
    # "verifier", "module:function", or a sum such as "verifier + 0.1*my_reward:brevity"
    # whose first term decides which completions are correct; see docs/extending.md.
    function: str = "verifier"
    # Smallest reward of a correct completion if no "correct" is returned with it.
    right_from: float = 1.0
    # The verifier rejects answers that leave something to calculate, such as 48+24 for
    # 72 or x+x for 2x. False accepts every expression of equal value.
    literal: bool = True
    # If set, the verifier reads only the text after the last occurrence of this text,
    # such as "</think>".
    after: str = ""
    workers: Count = 2  # verifier processes, and the same number for your functions
    timeout: Positive = 5.0  # seconds per verdict, or per call of a reward function
    shuffle: bool = False  # control experiment: permute rewards at random in each round
    # Length penalty of DAPO: over the last overlong_buffer tokens before
    # rollout.max_response_tokens, it grows linearly from 0 to overlong_factor.
    overlong_buffer: Count = 512
    overlong_factor: NotNegative = 0.0  # largest length penalty; 0 disables it


class Objective(Section):
    # Loss of each token: grpo, dual_clip, cispo, gspo, dppo, or "module:function"; see
    # rl/update/losses.py. configs/objectives.py lists published methods by name.
    function: str = "grpo"
    function_args: Mapping[str, Any] = field(default_factory=dict)  # loss arguments
    # Log-probabilities of the policy before the step's updates. trainer computes them
    # in a forward pass. sampler uses the sampler's values, which differ by rounding,
    # if the jax backend sampled the whole micro-batch with the current weights.
    old_logprobs: Literal["trainer", "sampler"] = "trainer"
    # Clip range of the policy ratio: [1 - eps_low, 1 + eps_high]. dppo instead limits
    # the change of a token's probability to [-eps_low, eps_high].
    eps_low: Share = 0.2
    eps_high: Positive = 0.28  # upper end of the clip range, see eps_low
    # std, mean, batch_std, maxrl, leave_one_out, or "module:function"; see
    # rl/groups/advantages.py.
    advantage: str = "std"
    # How token losses are averaged: over all tokens (token), over each group's tokens
    # and then groups (group), or over each completion's tokens and then completions
    # (sequence). constant divides by completions x rollout.max_response_tokens.
    aggregation: Literal["token", "group", "sequence", "constant"] = "token"
    # Off-policy tokens: truncate weights them by the truncated importance ratio. mask,
    # geometric or "module:function" drop some of them; see rl/update/rejection.py.
    correction: str = "truncate"
    correction_cap: Annotated[float, Range(1)] = 2.0  # bound of the importance ratio
    entropy_bonus: float = 0.0  # coefficient of the entropy in nats; 0 disables it
    kl_penalty: NotNegative = 0.0  # coefficient of the KL term; 0 disables it
    kl_estimate: Literal["k1", "k3"] = "k3"  # estimate of the KL; see rl.update.losses
    # Reference model of the KL term, a folder or hub id with the same tokenizer; empty:
    # the base model. See docs/extending.md, "A reference".
    reference: str = ""
    # Steps between replacements of the reference's weights by the policy's; 0: none.
    reset_every: Index = 0


class Batch(Section):
    prompts_per_step: Count = 128  # prompts, and thus groups, that a step trains on
    prompts_per_update: Count = 32  # prompts per mini-batch; divides prompts_per_step
    ppo_epochs: Count = 1  # passes over the step's mini-batches
    # Lengths of packed rows in tokens. A mini-batch uses that with the least padding.
    row_lengths: tuple[Count, ...] = (4096,)
    # Completions of a group in one row share one copy of their prompt. Saves compute
    # if prompts are long compared with completions.
    share_prompts: bool = False
    # Largest number of tokens in a micro-batch over all devices, padding included.
    micro_tokens: Count = 32768


class Optimizer(Section):
    # "adamw", or "module:function" for another Optax optimizer; see docs/extending.md.
    function: str = "adamw"
    b1: Decay = 0.9  # decay of AdamW's first moment
    b2: Decay = 0.99  # decay of AdamW's second moment
    weight_decay: NotNegative = 0.0  # decoupled; not applied to norms and biases
    # Gradients are clipped to this global norm; 0 disables clipping.
    max_grad_norm: NotNegative = 1.0
    moments_dtype: Literal["float32", "bfloat16"] = "float32"  # dtype of both moments


class Schedule(Section):
    """Sets the learning rate of each update."""

    learning_rate: Positive = 1e-6  # peak learning rate
    warmup_updates: Index = 10  # updates of the linear warm-up
    decay: Literal["constant", "linear", "cosine"] = "constant"  # after the warm-up
    decay_updates: Index = 0  # updates from the end of the warm-up to a rate of 0


class Eval(Section):
    """Evaluates the sets of data.eval before, during and after training."""

    every_steps: Index = 0  # steps between evaluations; 0: only before and after
    # Number of problems of each set that are evaluated during training, always the
    # same; 0: all. Before and after training, all problems are evaluated.
    problems: Index = 0
    samples: Count = 8  # completions per problem at eval.temperature
    temperature: NotNegative = 1.0  # sampling temperature of these completions
    reward: str = ""  # reward of held-out problems; empty: reward.function
    greedy: bool = True  # also sample one greedy completion per problem


class Checkpoint(Section):
    every_steps: Index = 20  # steps between checkpoints; 0: only after the last step
    # Newest checkpoints to retain, in addition to the best and the last without alarms.
    keep: Count = 3
    # Seconds that a step may still take after SIGTERM or Ctrl-C; a longer step is
    # abandoned. Set it to the scheduler's grace period minus the time of a save.
    grace_seconds: NotNegative = 1.5


class Export(Section):
    dtype: DType = "bfloat16"  # dtype of the weights in WORKDIR/hf, written at the end


class Log(Section):
    # Completions per step that are written to samples.jsonl and TensorBoard.
    samples: Annotated[int, Range(0, 8)] = 4
    sinks: tuple[str, ...] = ()  # further metric loggers: "wandb" or "module:function"


class Profile(Section):
    # First and last step of a profiler trace in WORKDIR/profile; empty: no trace.
    steps: tuple[int, ...] = ()


class Alarms(Section):
    """Ends a run that goes wrong, by the alarms of stop_on; see rl/alarms.py.

    Every alarm prints a warning at each step at which its condition holds.
    """

    stop_on: tuple[AlarmName, ...] = ("truncated", "unjudged", "skipped_updates")
    # Steps in a row with a warning after which an alarm of stop_on ends the run.
    # stuck_reward and skipped_updates have their own counts in rl/alarms.py.
    patience: Count = 5


class RunConfig(Section):
    """Holds all sections. Keys without a section are set as --config.KEY=VALUE."""

    seed: Index = 0  # random seed of problem order, sampling and evaluation
    # Makes runs on GPUs reproducible bit for bit, but slower; runs on CPUs always are.
    deterministic: bool = False
    steps: Count = 200  # a step samples a batch, updates the policy and publishes it
    # JAX compilation cache; JAX_COMPILATION_CACHE_DIR overrides it; empty disables it.
    compiled: str = "~/.cache/compass-thinker"
    model: Model = Model()
    mesh: Mesh = Mesh()
    data: Data = Data()
    curriculum: Curriculum = Curriculum()
    rollout: Rollout = Rollout()
    sampling: Sampling = Sampling()
    dynamic_sampling: DynamicSampling = DynamicSampling()
    reward: Reward = Reward()
    objective: Objective = Objective()
    batch: Batch = Batch()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    eval: Eval = Eval()
    checkpoint: Checkpoint = Checkpoint()
    export: Export = Export()
    log: Log = Log()
    profile: Profile = Profile()
    alarms: Alarms = Alarms()


def get_config() -> ConfigDict:
    """Returns the default config. Setting a key that it does not have is an error."""
    tree = dataclasses.asdict(RunConfig())
    # The default is a text; a config file may replace it by a mapping.
    tree["data"]["eval"] = FieldReference(tree["data"]["eval"], field_type=object)
    return ConfigDict(tree).lock()


def in_stage(c: RunConfig, stage: Stage) -> RunConfig:
    """Returns the config of a stage's steps: that of the run with its settings."""
    r, o, s = c.rollout, c.objective, c.schedule
    return dataclasses.replace(
        c,
        rollout=dataclasses.replace(
            r,
            max_response_tokens=stage.max_response_tokens or r.max_response_tokens,
            group_size=stage.group_size or r.group_size,
            temperature=stage.temperature or r.temperature,
        ),
        objective=dataclasses.replace(o, eps_high=stage.eps_high or o.eps_high),
        schedule=dataclasses.replace(
            s, learning_rate=stage.learning_rate or s.learning_rate
        ),
    )


def from_config(config: ConfigDict) -> RunConfig:
    """Converts a config to its dataclass.

    Raises ValueError if a key is unknown or missing, or a value is not valid.
    """
    values = config.to_dict()
    typed = parse(RunConfig, values)
    if lost := flatten(dataclasses.asdict(typed)).keys() - flatten(values).keys():
        raise ValueError(
            f"config.{min(lost)}: is missing; set single keys of a section, and do not"
            " delete or replace it"
        )
    return typed
