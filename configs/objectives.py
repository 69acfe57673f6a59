"""Objectives of papers by name, to be laid over any config's:

    c.objective.update(objectives.DR_GRPO)

Each says all that makes the method: the token's loss and its bounds, the advantage, how
tokens are averaged, and the correction of off-policy tokens. The default of
configs/base.py is DAPO's, which is Compass-Thinker's.
"""

# arXiv 2402.03300, without the KL term.
GRPO = dict(
    function="grpo",
    eps_low=0.2,
    eps_high=0.2,
    advantage="std",
    aggregation="sequence",
    correction="truncate",
    correction_cap=2.0,
)
# arXiv 2503.14476.
DAPO = GRPO | dict(eps_high=0.28, aggregation="token")
# arXiv 2503.20783: no division by the group's std, nor by a completion's length.
DR_GRPO = GRPO | dict(advantage="mean", aggregation="constant")
# arXiv 2507.18071.
GSPO = GRPO | dict(function="gspo", eps_low=3e-4, eps_high=4e-4)
# arXiv 2506.13585. The paper gives no upper bound; weights up to 5 are our choice.
CISPO = DAPO | dict(function="cispo", eps_low=1.0, eps_high=4.0, correction_cap=5.0)
# arXiv 2510.13786: each prompt counts alike; the advantage is scaled over the batch.
SCALE_RL = CISPO | dict(advantage="batch_std", aggregation="group")
# arXiv 2602.04879; the bounds, of a probability's change, are the defaults: our choice.
DPPO = DAPO | dict(function="dppo")
# arXiv 2602.02710.
MAX_RL = GRPO | dict(advantage="maxrl", aggregation="token")
