"""What a run will need of machines that are not here, by their own compilers.

Enters: a training config, as `python -m rl.train` takes it, and the name of a target.
Leaves: memory phase by phase, collectives, times and costs, as text, JSON and a page.
Begin at `__main__`. A config becomes a `workload`; its programs are lowered and
compiled in an environment of their own, and what their texts say is added up:

    workload -> environments .. compiling -> phases -> speed -> pace -> timeline
                                   |           |                   |       |
                         programs, hlo      estimate <- search     |    servers
                                                                   report -> page

(`rl.plan` checks a config before it is run; nothing here is imported by training.)
"""
