"""Defines the objectives of published methods, to be set in a config:

    c.objective.update(objectives.DR_GRPO)

The default in configs/base.py is DAPO, as in Compass-Thinker.
"""

# arXiv 2503.14476.
DAPO = dict(
    function="grpo",
    eps_low=0.2,
    eps_high=0.28,
    advantage="std",
    aggregation="token",
    correction="truncate",
    correction_cap=2.0,
)
# arXiv 2402.03300, without the KL term.
GRPO = DAPO | dict(eps_high=0.2, aggregation="sequence")
# arXiv 2503.20783: divides neither by the group's std nor by the completion's length.
DR_GRPO = GRPO | dict(advantage="mean", aggregation="constant")
# arXiv 2507.18071.
GSPO = GRPO | dict(function="gspo", eps_low=3e-4, eps_high=4e-4)
# arXiv 2506.13585. The paper gives no upper bound; our choice is a ratio of up to 5.
CISPO = DAPO | dict(function="cispo", eps_low=1.0, eps_high=4.0, correction_cap=5.0)
# arXiv 2510.13786: all prompts have equal weight; advantages use the batch's std.
SCALE_RL = CISPO | dict(advantage="batch_std", aggregation="group")
# arXiv 2602.04879. eps bounds the change of a token's probability; values: our choice.
DPPO = DAPO | dict(function="dppo")
# arXiv 2602.02710.
MAX_RL = GRPO | dict(advantage="maxrl", aggregation="token")
