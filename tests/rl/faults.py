"""Faults for a real run: a config's `data.train` names one, which plants it."""

import dataclasses

import numpy as np

from rl.problems.arithmetic import problems
from rollout.jax_sampler import JaxSampler
from rollout.seeds import Stream, run_seed

# The run's seed is 0, and with every group kept a step takes one round.
STEP = 7


def nan_batch(**arguments):
    """What is drawn with the seed of step 7 holds a NaN, in stale tokens."""
    sample = JaxSampler.sample
    fatal = run_seed(0, Stream.SAMPLING, STEP - 1)

    def with_nan(self, prompts, params, *, seed, on_finished=None):
        groups = sample(self, prompts, params, seed=seed, on_finished=on_finished)
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
