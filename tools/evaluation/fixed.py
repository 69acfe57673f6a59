"""Samples from vLLM servers that load a model themselves and keep its weights."""

from collections.abc import Sequence

from rollout.vllm.fan_out import FleetSampler
from rollout.vllm.fleet import ServerFleet
from rollout.vllm.server import ServerProcess


class FixedVllmSampler(FleetSampler):
    """Implements `Sampler` over vLLM servers whose weights stay as they are.

    The servers at `urls` may be ordinary ones (`vllm serve MODEL`).

    Args:
      servers: to be started here, with `load_format` "auto".
      urls, api_key, concurrency: see `rollout.vllm.fleet.ServerFleet`.
      max_model_len: longest prompt and completion together.

    Raises:
      ServerFailed: a server did not come up, with the end of its log.
      ServerRefused: it serves less than `max_model_len`.
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
