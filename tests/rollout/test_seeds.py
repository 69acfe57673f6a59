"""Seeds are a function of where in a run they are drawn."""

from rollout.seeds import Stream, run_seed


def test_an_attempt_has_seeds_of_its_own_and_the_first_those_without_any():
    # Of runs before there were attempts: theirs must stay.
    assert run_seed(0, Stream.SAMPLING, 7) == 684899372
    seeds = [run_seed(0, Stream.SAMPLING, 7, attempt=a) for a in range(100)]
    assert seeds[0] == run_seed(0, Stream.SAMPLING, 7) and len(set(seeds)) == 100
    # An attempt is not the next count in disguise.
    others = {run_seed(0, Stream.SAMPLING, count) for count in range(100)}
    assert len(others & set(seeds)) == 1
