"""A model that vLLM servers have loaded themselves: sampled from, never trained."""

from collections.abc import Sequence

from rollout.types import Completion, OnFinished, OnPause, SamplingParams, SoFar
from rollout.vllm.fan_out import check_lengths, sample_all
from rollout.vllm.fleet import Fleet
from rollout.vllm.server import VllmServer

_MAX_RESTARTS = 3


class FixedVllmSampler:
    """A `Sampler` over one or several vLLM servers whose weights stay as they are.

    The servers at `urls` may be ordinary ones (`vllm serve MODEL`): nothing is asked of
    them but completions.
    """

    def __init__(
        self,
        *,
        servers: Sequence[VllmServer] = (),
        urls: Sequence[str] = (),
        api_key: str = "",
        max_model_len: int,
        concurrency: int = 256,
    ):
        """Starts the servers and waits until each can be asked.

        Args:
          servers: not yet started, with `load_format` "auto".
          Others: see `rollout.vllm.sampler.VllmSampler`.

        Raises:
          ServerFailed: a server did not come up, with the end of its log.
          ServerRefused: it serves less than `max_model_len`.
        """
        self._max_model_len = max_model_len
        self._fleet = Fleet(
            servers=servers,
            urls=urls,
            api_key=api_key,
            greet=lambda client: client.attach(max_model_len=max_model_len),
            bring_up_to_date=lambda client: None,
            mended=lambda client, answer: None,
            concurrency=concurrency,
            start_seconds=900.0,
            stall_seconds=120.0,
            max_restarts=_MAX_RESTARTS,
        )
        try:
            self._fleet.update()
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
        check_lengths(prompts, params, self._max_model_len)
        return sample_all(
            self._fleet,
            prompts,
            params,
            seed=seed,
            version_of=lambda label: 0,
            most_faults=_MAX_RESTARTS + 2,
            begun=begun,
            on_finished=on_finished,
            on_pause=on_pause,
        )

    def close(self) -> None:
        """Ends the servers that were started here; the others go on serving."""
        self._fleet.close()
