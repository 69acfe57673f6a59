"""Plans a run on accelerators that are not here, with their own compilers.

    config, target -> workload -> programs -> compiling (in its own environment)
                         |                        |
                       search                hlo, report -> text, JSON

Begin at `__main__`. Training imports nothing from here.
"""
