"""Trains Qwen2.5-7B as configs/compass_thinker_7b.py does Qwen2.5-Math-7B."""

from configs.compass_thinker_7b import HARDWARE, make_get_config

get_config = make_get_config("Qwen/Qwen2.5-7B", HARDWARE)
