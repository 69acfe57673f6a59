"""Computes rewards of completions, by the verifier, user functions, or a sum of them.

Input: texts, their problems, and a sum such as "verifier + 0.1*my_reward:brevity".
Output: a `Score` of each text, with its reward, correctness and reward components.
Start reading at `rewards`. `function` defines the contract of user functions, and
`judges` has reward functions for comparison.
"""
