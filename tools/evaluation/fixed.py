"""Samples from vLLM servers whose weights are never updated."""

from collections.abc import Sequence

from rollout.vllm.fan_out import FleetSampler
from rollout.vllm.fleet import ServerFleet
from rollout.vllm.server import ServerProcess


class FixedVllmSampler(FleetSampler):
    """Implements `Sampler` over vLLM servers whose weights are never updated.

    Args:
      servers: servers to start, which load the model (`load_format` "auto").
      urls: addresses of running servers, such as those of `vllm serve MODEL`.
      api_key, concurrency: see `rollout.vllm.fleet.ServerFleet`.
      max_model_len: maximum length of prompt and completion together, in tokens.

    Raises:
      ServerFailed: a server did not start; the message has the end of its log.
      ServerRefused: a server's maximum length is below `max_model_len`.
    """

    def __init__(
        self,
        *,
        servers: Sequence[ServerProcess] = (),
        urls: Sequence[str] = (),
        api_key: str = "",
        max_model_len: int,
        concurrency: int = 256,
    ):
        fleet = ServerFleet(
            servers=servers, urls=urls, api_key=api_key, concurrency=concurrency
        )
        super().__init__(fleet, max_model_len=max_model_len)
        try:
            fleet.start(
                attach=lambda client: client.attach(max_model_len=max_model_len),
                update=lambda client: None,
                check_restarted=lambda client, answer: None,
            )
            fleet.update_all()
        except BaseException:
            self.close()
            raise
