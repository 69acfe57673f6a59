"""Every key, its default and what it means; other configs are short deltas of this."""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    c = ConfigDict()
    c.seed = 0
    c.steps = 200  # steps of the run; one is sample ... publish
    c.compiled = "~/.cache/compass-thinker"  # keeps compiled programs; empty: nobody

    c.model = ConfigDict()
    c.model.path = ""  # Hugging Face folder or hub id of the base model
    c.model.maker = ""  # or "module:function" that makes one and returns its folder
    c.model.maker_args = ConfigDict()
    c.model.dtype = "bfloat16"  # of activations and matrix products
    c.model.param_dtype = "float32"  # masters; bfloat16 hardly moves at lr 1e-6
    c.model.remat = "full"  # none | dots | full: what the backward pass recomputes
    c.model.unroll = 1  # layers per scan iteration
    c.model.attention = "auto"  # xla | triton (GPU) | mosaic (TPU) | auto: by platform
    c.model.head_chunk = 1024  # tokens per device that meet the vocabulary at a time

    c.mesh = ConfigDict()  # one of the three may be -1: what the others leave
    c.mesh.data = 1
    c.mesh.fsdp = -1
    c.mesh.tensor = 1
    c.mesh.offload_optimizer = False  # its state rests in the host's memory
    c.mesh.cpu_devices = 0  # virtual devices on CPU; 0: one per core, at most

    c.data = ConfigDict()
    # JSONL files, here or hf://OWNER/DATASET@REVISION/FILE, separated by commas; or
    # "module:function".
    c.data.train = ""
    c.data.train_args = ConfigDict()  # of that function
    c.data.eval = ""  # likewise; empty: no evaluation
    c.data.eval_args = ConfigDict()
    c.data.fields = ConfigDict()  # our field name -> the file's, where they differ
    c.data.unreadable_golds = (
        0.01  # share left out, since the verifier cannot read them
    )
    # qwen_math | r1 | none | a text with {problem} | model: the tokenizer's own chat
    # template, as model:{"enable_thinking": false} with what that reads.
    c.data.template = "qwen_math"

    # Stages in order; see rl.problems.curriculum. Empty: one stage over all problems. A
    # stage is {"name": text, "levels": {"1": share, ...}, "steps": n, "advance":
    # {"metric": "accuracy" or "solve_all", "at_least": x, "window": steps}}, and over
    # the run's own "max_response_tokens", "group_size", "temperature", "eps_high",
    # "learning_rate".
    c.curriculum = ConfigDict()
    c.curriculum.stages = ()

    c.rollout = ConfigDict()
    c.rollout.backend = "jax"  # jax: inside the trainer | vllm: servers, below
    c.rollout.schedule = "sync"  # sync | one_step_off | async; the last two want vllm
    c.rollout.max_staleness = 2  # async: versions that a batch may be begun ahead
    c.rollout.group_size = 16  # G, completions per prompt
    c.rollout.temperature = 1.0
    c.rollout.top_p = 1.0  # training refuses less: the trainer does not renormalise
    c.rollout.max_prompt_tokens = 1024  # longer prompts are left out, and counted
    c.rollout.max_response_tokens = 3072
    c.rollout.stop_token_ids = ()  # empty: those of the model folder
    c.rollout.slots = 256  # completions decoded together by the embedded sampler
    c.rollout.tensor = 0  # devices to a copy of its weights; 0: the fewest that hold it

    c.rollout.vllm = ConfigDict()  # VLLM_API_KEY in the environment is the key, if any
    c.rollout.vllm.python = ".venv-vllm/bin/python"  # starts a server that ends with us
    c.rollout.vllm.url = ""  # or servers that run already, separated by commas
    c.rollout.vllm.devices = ""  # GPUs of each server: "0;1", "0,1;2,3"; "": all left
    c.rollout.vllm.dtype = ""  # of serving; empty: model.dtype
    c.rollout.vllm.max_num_seqs = 256  # completions decoded together by a server
    c.rollout.vllm.gpu_memory_utilization = 0.0  # 0: 0.9; to be set on a shared GPU
    c.rollout.vllm.cpu_kv_cache_gib = 1
    c.rollout.vllm.enforce_eager = False  # True starts sooner and decodes slower
    c.rollout.vllm.host = "127.0.0.1"  # anything else asks for a key
    c.rollout.vllm.port = 0  # of the first server; 0: free ones
    c.rollout.vllm.weights = "files"  # memory: servers of this node read it from us
    c.rollout.vllm.weight_dir = ""  # a folder that servers elsewhere see; "": /dev/shm
    c.rollout.vllm.weight_url = ""  # or where they ask us: http://this-machine:port
    c.rollout.vllm.probe_tolerance = 0.0  # mean gap after a sync, nats; 0: by dtype
    c.rollout.vllm.start_seconds = 900.0
    c.rollout.vllm.sync_seconds = 300.0  # for each phase of a weight update
    c.rollout.vllm.stall_seconds = 120.0  # without a token, before a server hangs
    c.rollout.vllm.max_restarts = 3  # of a server, between two publishes

    c.sampling = ConfigDict()  # see docs/sampling.md
    c.sampling.policy = "uniform"  # uniform | signal: problems likely to teach
    c.sampling.explore = 0.05  # signal: least chance that a problem on offer is drawn
    c.sampling.power = 1.0  # signal: 0 draws all alike, more prefers what teaches more
    c.sampling.retire_at = 0.9  # signal: solve rate from which one is only explored
    c.sampling.half_life = 200.0  # steps, of what was seen of a problem
    c.sampling.first = 0  # completions before a group may end; 0: groups are whole

    c.dynamic_sampling = ConfigDict()
    c.dynamic_sampling.filter = True  # drop groups that teach nothing:
    c.dynamic_sampling.filter_on = "correct"  # all right or wrong | reward: all alike
    c.dynamic_sampling.max_rounds = 8  # of sampling per step
    c.dynamic_sampling.oversample = 2.0  # prompts of a round, at most, over a step's
    c.dynamic_sampling.max_age = 1  # steps, not skipped, that a surplus group may wait
    c.dynamic_sampling.carry = False  # a step waits for no group that it can do without
    c.dynamic_sampling.on_shortfall = "skip"  # skip | partial | stop
    c.dynamic_sampling.max_shortfalls = 5  # steps skipped in a row, before it ends

    c.reward = ConfigDict()
    # verifier | module:function | a sum like "verifier + 0.1*my_reward:brevity", whose
    # first term says what is correct; see docs/extending.md
    c.reward.function = "verifier"
    c.reward.right_from = 1.0  # a reward that says no more is correct from here on
    c.reward.workers = 2  # processes that judge; as many of the user's functions
    c.reward.timeout = 5.0  # seconds per answer, or per call of a function
    c.reward.shuffle = False  # the control: deal verdicts out at random
    c.reward.overlong_buffer = 512  # tokens
    c.reward.overlong_factor = 0.0  # 0: off

    c.objective = ConfigDict()
    # The loss of a token: grpo | dual_clip | cispo | gspo | dppo, or "module:function";
    # see rl.update.losses. configs/objectives.py has the methods of papers by name.
    c.objective.function = "grpo"
    c.objective.function_args = ConfigDict()  # what it takes besides
    # Of the ratio: trainer | sampler, where it drew a micro-batch with the current
    # weights in this process; saves a forward pass, differs by rounding.
    c.objective.old_logprobs = "trainer"
    c.objective.eps_low = 0.2
    c.objective.eps_high = 0.28
    # std | mean | batch_std | maxrl | leave_one_out, or "module:function"; see
    # rl.batches.advantages.
    c.objective.advantage = "std"
    c.objective.aggregation = "token"  # token | group | sequence | constant
    c.objective.correction = "truncate"  # of off-policy tokens: | mask | geometric
    c.objective.correction_cap = 2.0
    c.objective.entropy_bonus = 0.0  # times the entropy in nats; 0: off
    c.objective.kl_penalty = 0.0  # times the KL to the base; above 0 it stays loaded
    c.objective.kl_estimate = "k3"  # k1 | k3

    c.batch = ConfigDict()
    c.batch.prompts_per_step = 128
    c.batch.prompts_per_update = 32
    c.batch.ppo_epochs = 1
    c.batch.row_lengths = (4096,)  # of packed rows; of those that fit the fullest
    # Completions in one row share the positions of their prompt: pays where prompts are
    # long beside completions.
    c.batch.share_prompts = False
    c.batch.micro_tokens = 32768  # tokens of one micro-batch, over all devices

    c.optimizer = ConfigDict()
    c.optimizer.b1 = 0.9
    c.optimizer.b2 = 0.99
    c.optimizer.eps = 1e-8
    c.optimizer.weight_decay = 0.0
    c.optimizer.max_grad_norm = 1.0
    c.optimizer.moments_dtype = "float32"

    c.schedule = ConfigDict()  # by updates
    c.schedule.learning_rate = 1e-6
    c.schedule.warmup_updates = 10
    c.schedule.decay = "constant"  # constant | linear | cosine
    c.schedule.decay_updates = 0  # from the warm-up's end to the final rate
    c.schedule.final_fraction = 0.0  # of the peak, where a decay ends

    c.eval = ConfigDict()
    c.eval.every_steps = 0  # 0: only before and after
    c.eval.samples = 8  # per problem, at eval.temperature
    c.eval.temperature = 1.0
    c.eval.top_p = 1.0
    c.eval.reward = ""  # as reward.function; empty: the same
    c.eval.greedy = True  # a greedy pass besides

    c.checkpoint = ConfigDict()
    c.checkpoint.every_steps = 20
    c.checkpoint.keep = 3  # the newest; the last healthy and the best one besides
    c.checkpoint.on_damage = "fallback"  # to the newest whole one | stop
    # After a signal a step under way has so long to end and be saved, or is abandoned;
    # about what the scheduler gives, less the time that a save takes.
    c.checkpoint.grace_seconds = 1.5

    c.export = ConfigDict()
    c.export.dtype = "bfloat16"  # of the Hugging Face folder at the end
    c.export.unhealthy = False  # whether a run leaves one whose last updates failed

    c.log = ConfigDict()
    c.log.samples = 4  # completions per step in samples.jsonl, TensorBoard; 0 to 8
    c.log.tokens_every = 20  # steps, of which some tokens go to tokens.jsonl; 0: never
    c.log.sinks = ()  # who else is told the figures: "wandb", or "module:function"

    c.profile = ConfigDict()
    c.profile.steps = ()  # the first and the last step of a trace in WORKDIR/profile

    # What each alarm does after `patience` steps in a row at which it holds: warn, and
    # so at each of them | stop | rollback to the last healthy checkpoint.
    c.alarms = ConfigDict()
    c.alarms.truncated = 0.9  # share of completions, above
    c.alarms.unjudged = 0.01  # share of completions without a verdict, above
    c.alarms.no_signal = 0.02  # share of groups that the filter would keep, below
    c.alarms.repeated = 0.5  # share of completions that go round in circles, above
    c.alarms.duplicated = 1.0  # share equal to another one of their group, above
    c.alarms.entropy_low = 0.01  # nats per token
    c.alarms.entropy_high = 5.0
    c.alarms.sampler_gap = 0.1  # nats per token between sampler and trainer
    c.alarms.stuck_reward = 10  # steps at which the mean reward has not moved
    c.alarms.skipped_updates = 3  # in a row
    c.alarms.on_truncated = "stop"
    c.alarms.on_unjudged = "stop"
    c.alarms.on_no_signal = "warn"
    c.alarms.on_repeated = "warn"
    c.alarms.on_duplicated = "warn"
    c.alarms.on_entropy_low = "warn"
    c.alarms.on_entropy_high = "warn"
    c.alarms.on_sampler_gap = "warn"
    c.alarms.on_stuck_reward = "warn"
    c.alarms.on_skipped_updates = "stop"
    c.alarms.on_not_finite = "warn"  # any figure of a step
    c.alarms.patience = 5
    c.alarms.max_rollbacks = 2  # of a run; the next one ends it

    c.recorder = ConfigDict()  # see docs/alarms.md
    c.recorder.max_gb = 8.0  # of records since the last healthy checkpoint; 0: off
    c.recorder.dumps = 2  # that are kept, each with its checkpoint
    return c.lock()  # a key that is not here is an error
