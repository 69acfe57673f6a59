"""Samples from vLLM servers that load a model themselves and keep its weights."""

from collections.abc import Sequence

from rollout.types import Completion, OnFinished, OnPause, SamplingParams, SoFar
from rollout.vllm.fan_out import sample_all
from rollout.vllm.fleet import ServerFleet
from rollout.vllm.server import ServerProcess


class FixedVllmSampler:
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
        self._max_model_len = max_model_len
        self._fleet = ServerFleet(
            servers=servers, urls=urls, api_key=api_key, concurrency=concurrency
        )
        try:
            self._fleet.start(
                attach=lambda client: client.attach(max_model_len=max_model_len),
                update=lambda client: None,
                check_restarted=lambda client, answer: None,
            )
            self._fleet.update_all()
        except BaseException:
            self.close()
            raise

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seed: int,
        begun: SoFar | None = None,
        on_finished: OnFinished | None = None,
        on_pause: OnPause | None = None,
    ) -> list[list[Completion]]:
        """See `Sampler.sample` and `rollout.vllm.fan_out.sample_all`."""
        return sample_all(
            self._fleet,
            prompts,
            params,
            seed=seed,
            version_of=lambda label: 0,
            max_model_len=self._max_model_len,
            begun=begun,
            on_finished=on_finished,
            on_pause=on_pause,
        )

    def close(self) -> None:
        """Ends the servers that were started here; the others keep running."""
        self._fleet.close()
