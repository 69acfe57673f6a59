"""Every key, with its type, range, default and meaning; other configs change a few.

The keys are dataclasses, so that a type checker follows each one from here to its use.
A config file changes the ConfigDict of `get_config`; `from_config` checks it and turns
it back into a `RunConfig`.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from ml_collections import ConfigDict, FieldReference

from configs.schema import (
    Count,
    Index,
    NotNegative,
    Positive,
    Range,
    Share,
    parse,
    section,
)

DType = Literal["bfloat16", "float16", "float32"]
AlarmName = Literal[
    "truncated",
    "unjudged",
    "no_signal",
    "repeated",
    "entropy_low",
    "entropy_high",
    "sampler_gap",
    "stuck_reward",
    "skipped_updates",
    "not_finite",
]


@section
class Lora:
    """Trains low-rank adapters and leaves the base as it is; see docs/lora.md."""

    rank: Index = 0  # 0: trains all parameters
    alpha: Positive = 32.0  # adapters are scaled by alpha / rank
    targets: Literal["attention", "mlp", "all"] = "all"  # kernels that have adapters
    init_seed: Index = 0  # of the adapters' random half


@section
class Model:
    path: str = ""  # Hugging Face folder or hub id of the base model
    maker: str = ""  # or "module:function" that makes one and returns its folder
    maker_args: Mapping[str, Any] = field(default_factory=dict)
    dtype: DType = "bfloat16"  # of activations and matrix products
    # Of products on accelerators if dtype is float32. default is TF32 on GPUs and one
    # bfloat16 pass on TPUs; highest is float32.
    matmul_precision: Literal["default", "high", "highest"] = "highest"
    param_dtype: DType = "float32"  # masters; bfloat16 hardly moves at lr 1e-6
    # What the backward pass recomputes.
    remat: Literal["none", "dots", "full"] = "full"
    # triton runs on GPUs, splash on TPUs; auto chooses by platform and dtype.
    attention: Literal["auto", "xla", "triton", "splash"] = "auto"
    head_chunk: Count = 1024  # tokens per device whose logits exist at a time
    lora: Lora = field(default_factory=Lora)


@section
class Mesh:
    """One of data, fsdp and tensor may be -1: all devices that the others leave."""

    data: int = 1
    fsdp: int = -1
    tensor: int = 1
    offload_optimizer: bool = False  # keep the optimizer state in host memory
    cpu_devices: int = 0  # virtual devices on CPU; 0: one per core, at most


@section
class Data:
    # JSONL files, local or hf://OWNER/DATASET@REVISION/FILE, separated by commas; or
    # "module:function".
    train: str = ""
    train_args: Mapping[str, Any] = field(default_factory=dict)  # of that function
    # Held-out problems in the same forms, or several sets by name, such as
    # {"math500": "a.jsonl", "aime2024": "b.jsonl"}; the first decides which checkpoint
    # is the best. Empty: no evaluation.
    eval: str | Mapping[str, str] = ""
    eval_args: Mapping[str, Any] = field(default_factory=dict)  # several sets: by name
    # Our field name -> the file's column, where they differ.
    fields: Mapping[str, str] = field(default_factory=dict)
    # Share of problems that may be left out because the verifier cannot read the gold
    # or the tokenizer loses characters of the prompt.
    unreadable: Share = 0.01
    # qwen_math | r1 | none | a text with {problem} | model: the tokenizer's own chat
    # template, with arguments as in model:{"enable_thinking": false}.
    template: str = "qwen_math"


@section
class Curriculum:
    # Stages in order (rl.problems.curriculum); empty: one stage over all problems. A
    # stage is {"name": text, "levels": {"1": share, ...}, "steps": n, "advance":
    # {"metric": "accuracy" or "solve_all", "at_least": x, "window": steps}}, and may
    # override "max_response_tokens", "group_size", "temperature", "eps_high" and
    # "learning_rate".
    stages: tuple[Mapping[str, Any], ...] = ()


@section
class Vllm:
    """The servers. VLLM_API_KEY in the environment is their key, if any."""

    python: str = ".venv-vllm/bin/python"  # starts servers that end with the run
    url: str = ""  # or running servers to attach to, separated by commas
    devices: str = ""  # GPUs of each server: "0;1", "0,1;2,3"; empty: all others
    dtype: str = ""  # of serving; empty: model.dtype
    # Completions decoded together by a server.
    max_num_seqs: Annotated[int, Range(2)] = 256
    gpu_memory_utilization: float = 0.0  # 0: 0.9; set it on a shared GPU
    enforce_eager: bool = False  # True starts sooner and decodes slower
    weight_dir: str = ""  # directory shared with the servers; empty: /dev/shm
    # merged: all weights | adapter: those of model.lora, applied by the servers.
    publish: Literal["merged", "adapter"] = "merged"
    # Mean gap of the probe after a publish, in nats per token; 0: by dtype.
    probe_tolerance: float = 0.0


@section
class Rollout:
    # jax: embedded in the trainer | vllm: servers, see rollout.vllm.
    backend: Literal["jax", "vllm"] = "jax"
    # one_step_off and async require vllm.
    schedule: Literal["sync", "one_step_off", "async"] = "sync"
    # async: how many versions ahead of its use a batch may be started.
    max_staleness: Count = 2
    group_size: Annotated[int, Range(2)] = 16  # G, completions per prompt
    temperature: Positive = 1.0
    max_prompt_tokens: Count = 1024  # longer prompts are left out, and counted
    max_response_tokens: Count = 3072
    stop_token_ids: tuple[Index, ...] = ()  # empty: those of the model folder
    slots: Count = 256  # completions decoded together by the embedded sampler
    # Devices per copy of the embedded sampler's weights; 0: the fewest that hold one.
    tensor: Index = 0
    # "module:function" that adds groups to a step; see docs/extending.md.
    extra_groups: str = ""
    vllm: Vllm = field(default_factory=Vllm)


@section
class Sampling:
    """Which problems are drawn; see docs/sampling.md."""

    # signal: prefer problems that are likely to have both right and wrong answers.
    policy: Literal["uniform", "signal"] = "uniform"
    # signal: the least chance that a problem on offer is drawn.
    explore: Annotated[float, Range(0, 1, open=True)] = 0.05
    half_life: Positive = 200.0  # steps, of what is known about a problem


@section
class DynamicSampling:
    filter: bool = True  # drop groups without signal, see filter_on
    # correct: groups that are all right or all wrong | reward: all rewards equal |
    # auto: correct if the verifier is the first term of reward.function, else reward.
    filter_on: Literal["auto", "correct", "reward"] = "auto"
    max_rounds: Count = 8  # of sampling per step
    # Prompts of a round, at most, as a multiple of a step's prompts.
    oversample: Annotated[float, Range(1)] = 2.0
    # Steps, not skipped, that a surplus group may wait; with carry one more.
    max_age: Index = 1
    carry: bool = False  # unfinished groups wait for the next step, not the step
    on_shortfall: Literal["skip", "partial", "stop"] = "skip"


@section
class Reward:
    # verifier | module:function | a sum like "verifier + 0.1*my_reward:brevity", whose
    # first term decides what is correct; see docs/extending.md.
    function: str = "verifier"
    # A reward that does not say what is correct counts as correct from here on.
    right_from: float = 1.0
    # Where the gold is a number, 48+24 for 72 is unfinished: nothing may be left to
    # calculate. False accepts any expression that is equal.
    literal: bool = True
    after: str = ""  # ignore all before its last occurrence, such as "</think>"
    workers: Count = 2  # processes that judge; the same number again for your functions
    timeout: Positive = 5.0  # seconds per answer, or per call of a function
    shuffle: bool = False  # the control experiment: verdicts are dealt at random
    overlong_buffer: Count = 512  # tokens
    overlong_factor: NotNegative = 0.0  # 0: off


@section
class Objective:
    # The loss of a token: grpo | dual_clip | cispo | gspo | dppo, or "module:function";
    # see rl.update.losses. configs/objectives.py has the methods of papers by name.
    function: str = "grpo"
    function_args: Mapping[str, Any] = field(default_factory=dict)  # of that function
    # sampler: use the sampler's log-probabilities where it drew a micro-batch with the
    # current weights in this process; saves a forward pass, differs by rounding.
    old_logprobs: Literal["trainer", "sampler"] = "trainer"
    eps_low: Share = 0.2
    eps_high: Positive = 0.28
    # std | mean | batch_std | maxrl | leave_one_out, or "module:function"; see
    # rl.groups.advantages.
    advantage: str = "std"
    aggregation: Literal["token", "group", "sequence", "constant"] = "token"
    # Off-policy tokens: truncate weighs them | mask and geometric, or
    # "module:function", reject some before the loss is averaged (rl.update.rejection).
    correction: str = "truncate"
    correction_cap: Annotated[float, Range(1)] = 2.0
    entropy_bonus: float = 0.0  # times the entropy in nats; 0: off
    kl_penalty: NotNegative = 0.0  # times the KL to the base; above 0 it stays loaded
    kl_estimate: Literal["k1", "k3"] = "k3"
    # The model of the KL term, a folder or hub id with the same tokenizer; empty: the
    # base. See docs/extending.md, "Another reference".
    reference: str = ""
    reset_every: Index = 0  # steps after which the policy becomes it; 0: never


@section
class Batch:
    prompts_per_step: Count = 128
    prompts_per_update: Count = 32
    ppo_epochs: Count = 1
    # Lengths of packed rows; the one that packs a mini-batch fullest is used.
    row_lengths: tuple[Count, ...] = (4096,)
    # Completions in one row share the positions of their prompt: pays where prompts are
    # long compared with completions.
    share_prompts: bool = False
    micro_tokens: Count = 32768  # tokens of one micro-batch, over all devices


@section
class Optimizer:
    # adamw, or "module:function": an Optax transformation; see docs/extending.md.
    function: str = "adamw"
    b1: Share = 0.9
    b2: Share = 0.99
    weight_decay: NotNegative = 0.0
    max_grad_norm: Positive = 1.0
    moments_dtype: Literal["float32", "bfloat16"] = "float32"


@section
class Schedule:
    """The learning rate, by updates."""

    learning_rate: Positive = 1e-6
    warmup_updates: Index = 10
    decay: Literal["constant", "linear", "cosine"] = "constant"
    decay_updates: Index = 0  # from the end of the warm-up to a rate of 0


@section
class Eval:
    every_steps: Index = 0  # 0: only before and after
    # Problems of each set that the curve of every_steps is over, always the same; 0:
    # all. Before and after, all problems are evaluated.
    problems: Index = 0
    samples: Count = 8  # per problem, at eval.temperature
    temperature: NotNegative = 1.0
    reward: str = ""  # as reward.function; empty: the same
    greedy: bool = True  # also a greedy pass


@section
class Checkpoint:
    every_steps: Index = 20
    # The newest that are retained; the last healthy and the best one are as well.
    keep: Count = 3
    # Seconds that a step may take to end after a signal, before it is abandoned: what
    # the scheduler grants, less the time of a save.
    grace_seconds: NotNegative = 1.5


@section
class Export:
    dtype: DType = "bfloat16"  # of the Hugging Face folder at the end


@section
class Log:
    # Completions per step in samples.jsonl and TensorBoard.
    samples: Annotated[int, Range(0, 8)] = 4
    sinks: tuple[str, ...] = ()  # more metric loggers: "wandb", or "module:function"


@section
class Profile:
    steps: tuple[int, ...] = ()  # first and last step of a trace in WORKDIR/profile


@section
class Alarms:
    """Every alarm warns at each step at which it holds; some end the run.

    Their limits are in rl/alarms.py.
    """

    # Names of the alarms that end the run.
    stop_on: tuple[AlarmName, ...] = ("truncated", "unjudged", "skipped_updates")
    patience: Count = 5  # steps in a row at which an alarm holds, before it ends a run


@section
class RunConfig:
    seed: Index = 0
    # Whether a GPU repeats a run bit for bit, at some cost in speed; a CPU always does.
    deterministic: bool = False
    steps: Count = 200  # steps of the run; one is sample ... publish
    # JAX compilation cache directory; empty disables it.
    compiled: str = "~/.cache/compass-thinker"
    model: Model = field(default_factory=Model)
    mesh: Mesh = field(default_factory=Mesh)
    data: Data = field(default_factory=Data)
    curriculum: Curriculum = field(default_factory=Curriculum)
    rollout: Rollout = field(default_factory=Rollout)
    sampling: Sampling = field(default_factory=Sampling)
    dynamic_sampling: DynamicSampling = field(default_factory=DynamicSampling)
    reward: Reward = field(default_factory=Reward)
    objective: Objective = field(default_factory=Objective)
    batch: Batch = field(default_factory=Batch)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    eval: Eval = field(default_factory=Eval)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    export: Export = field(default_factory=Export)
    log: Log = field(default_factory=Log)
    profile: Profile = field(default_factory=Profile)
    alarms: Alarms = field(default_factory=Alarms)


def get_config() -> ConfigDict:
    """Return the defaults; a key that does not exist cannot be set."""
    tree = dataclasses.asdict(RunConfig())
    # A text by default, which a config may replace by a mapping.
    tree["data"]["eval"] = FieldReference(tree["data"]["eval"], field_type=object)
    return ConfigDict(tree).lock()


def from_config(config: ConfigDict) -> RunConfig:
    """Check a config and give its keys their types.

    Raises:
      ValueError: an unknown or missing key, or a value out of range; one line with the
        key, the value, and what it must be.
    """
    return parse(RunConfig, config.to_dict())
