"""Sums most of which teach nothing."""

from rl.problems.uneven import problems


def test_shares_of_the_sums_are_always_right_and_never():
    sums = problems(count=400, easy=0.3, hard=0.3, held_out=512, seed=0)
    assert len({p.id for p in sums}) == 400
    golds = [len(p.answers) for p in sums]
    assert 90 <= golds.count(200) <= 150  # 0 to 199: every sum, and every slip
    never = [p for p in sums if p.answers == ("200",)]
    assert 90 <= len(never) <= 150
    for p in sums:
        if p not in never:
            a, b = map(int, p.problem.split("+"))
            assert str(a + b) in p.answers
    assert {p.level for p in sums} == {None}
    assert sums == problems(count=400, easy=0.3, hard=0.3, held_out=512, seed=0)
    other = problems(count=400, easy=0.3, hard=0.3, held_out=512, seed=1)
    assert {p.id for p in sums} != {p.id for p in other}
