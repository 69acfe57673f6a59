"""A model's opinion of a row: what it is asked, and what its reply says."""

import pytest

from rl.evaluate import Drawn
from tools.curation.judge import agreement, opinion, question

ROW = {"problem": "What is {answer}?", "answers": ["2", "2.0"]}


def test_a_question_shows_the_row_and_is_known_by_its_text():
    asked = question(ROW)
    assert "<problem>\nWhat is {answer}?\n</problem>" in asked.problem
    assert "<answer>\n2\nor\n2.0\n</answer>" in asked.problem
    assert question(ROW | {"id": "other"}).id == asked.id
    assert question(ROW | {"answers": ["2"]}).id != asked.id


@pytest.mark.parametrize(
    ("reply", "reason", "sound"),
    [
        ("All four hold.\n\nVerdict: yes", "stop", True),
        ("**Verdict:** No.\n", "stop", False),
        ("Verdict: yes\nBut the figure is missing.\nVerdict: no", "stop", False),
        ("I end with Verdict: yes", "stop", None),
        ("Verdict: yes or no", "stop", None),
        ("yes", "stop", None),
        # it broke off, and might have gone on to another
        ("Verdict: yes\nBut wait", "length", None),
    ],
)
def test_a_reply_without_a_verdict_is_no_verdict(reply, reason, sound):
    drawn = Drawn(id="a", sample=0, completion=reply, finish_reason=reason)
    assert opinion(drawn)["sound"] is sound


def test_agreement_counts_what_was_judged_and_labelled():
    def row(label, sound):
        return {"meta": {"label": label}, "judged": {"sound": sound}}

    assert agreement([row(None, True), row("yes", True)]) == {}
    rows = [row(True, True)] * 6 + [
        row(False, True),
        row(False, False),
        row(True, None),
    ]
    told = agreement(rows)
    assert told["agreement"] == 0.875
    # Wilson's interval of 7 of 8, from its formula
    assert told["agreement_interval"] == pytest.approx((0.5291, 0.9776), abs=1e-4)
    assert told["labelled_sound"] == {"sound": 6, "unsound": 0, "unknown": 1}
    assert agreement([row(True, None)])["agreement"] is None
