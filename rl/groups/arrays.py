"""Arrays to JSON and back, bit for bit."""

import base64
from collections.abc import Mapping

import numpy as np


def encode_array(array: np.ndarray) -> dict[str, str]:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": str(array.dtype), "data": data}


def decode_array(state: Mapping[str, str]) -> np.ndarray:
    data = base64.b64decode(state["data"])
    return np.frombuffer(data, state["dtype"]).copy()
