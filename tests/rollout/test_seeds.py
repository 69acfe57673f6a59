"""Seeds depend on the run's seed, the stream and the count alone."""

from rollout.seeds import Stream, run_seed


def test_seeds_stay_as_they_were_and_differ():
    assert run_seed(0, Stream.SAMPLING, 7) == 684899372
    seeds = {run_seed(s, t, n) for s in range(3) for t in Stream for n in range(50)}
    assert len(seeds) == 450
