"""Which answers can serve as golds."""

from tools.curation.answers import unverifiable_answer
from tools.curation.row import Row


def test_a_gold_that_says_where_its_boxes_go_is_none():
    gold = r"\boxed{2} \text{ and } \boxed{3}"
    fault = unverifiable_answer(Row(id="a", problem="?", answers=(gold,)))
    assert fault == f"{gold}: is empty, has an unclosed brace, or contains a box"
    sound = Row(id="a", problem="?", answers=(r"[0, \infty)",))
    assert unverifiable_answer(sound) is None
