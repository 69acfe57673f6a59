"""Faults for a real run: a config's `data.train` names one, which plants it."""

import dataclasses
import errno
import os
import pathlib
import signal
import time

import jax
import numpy as np

from models import hf
from rl import checkpoint, run, run_spec
from rl.groups.collect import Collector
from rl.problems.arithmetic import problems
from rollout.jax_sampler import JaxSampler
from rollout.seeds import Stream, run_seed

# The run's seed is 0, and with every group kept a step takes one round.
STEP = 7


def nan_batch(**arguments):
    """What is drawn with the seed of step 7 holds a NaN, in stale tokens."""
    sample = JaxSampler.sample
    fatal = run_seed(0, Stream.SAMPLING, STEP - 1)

    def with_nan(self, prompts, params, *, seed, **told):
        groups = sample(self, prompts, params, seed=seed, **told)
        if seed == fatal:
            c = groups[1][3]
            logprobs = c.sampler_logprobs.copy()
            logprobs[1] = np.nan
            groups[1][3] = dataclasses.replace(
                c, sampler_logprobs=logprobs, versions=c.versions - 1
            )
        return groups

    JaxSampler.sample = with_nan
    return problems(**arguments)


def a_second_process_that_sees_no_checkpoint(**arguments):
    """As on a file system that does not show it yet; joint calls would wait for it."""
    if jax.process_index() == 1:
        checkpoint.steps_in = lambda folder: set()
    # Its stop token is none of the model, so that completions never end.
    run_spec.check_ids = lambda *args, **kwargs: None
    return problems(**arguments)


def a_second_process_without_space(**arguments):
    """The first save of process 1 fails, while process 0 waits for it."""

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if jax.process_index() == 1:
        checkpoint.Checkpoints.save = full
    return problems(**arguments)


def failing_reward(text, problem):
    raise KeyError("score")


def ended_around_an_evaluation(**arguments):
    """One start is stopped in its evaluation after two steps, the next is killed in the
    step after it, the third is stopped while it exports; the file $STARTS_LEFT says how
    many of them are to go.
    """
    left = pathlib.Path(os.environ["STARTS_LEFT"])
    starts = int(left.read_text())
    evaluate, collect = run.evaluate_sets, Collector.collect

    def stopped(spec, step, **how):
        if starts == 3 and step == 2:
            left.write_text("2")
            os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(spec, step, **how)

    def killed(self, step):
        if starts == 2 and step == 2:
            left.write_text("1")
            os.kill(os.getpid(), signal.SIGKILL)
        return collect(self, step)

    def hung(*args, **kwargs):
        left.write_text("0")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(3600)

    run.evaluate_sets, Collector.collect = stopped, killed
    if starts == 1:
        hf.write_tensors = hung
    return problems(**arguments)


def stale_weights(**arguments):
    """From version 3 on the sampler says so, and serves version 2."""
    publish, served = JaxSampler.publish, []

    def stale(self, params, version):
        if version < 3:
            publish(self, params, version)
            served[:] = [self._params]
        # An update drops what is served.
        (self._params,), self._version = served, version

    JaxSampler.publish = stale
    return problems(**arguments)
