"""Plans a run for accelerators without using them: compiles it with their compilers.

config, target -> workload -> programs -> compiling (in its own environment)
                     |                        |
                   search                hlo, report -> text, JSON
"""
