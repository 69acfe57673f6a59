"""Rewards of completions: the verifier, functions of the user, or a sum of them.

Enters: texts and their problems; a formula such as "verifier + 0.1*my_reward:brevity".
Leaves: a `Score` of each: reward, whether it is correct, its components.
Begin at `rewards`; `function` is the contract that a user's function is held to,
`golds` says which problems the verifier cannot judge, `judges` are alternatives to it.
"""
