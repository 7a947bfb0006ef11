"""The model provider of inspect_ai: `inspect eval task.py --model floatlens/twin-mdm`.

inspect_ai finds this module by the entry point of floatlens and reads it whenever it looks for a model, so torch is imported only when a
model is made. Requests that wait at the same time are written together, as many as `-M batch_size` says: whoever comes first writes for
all that wait for the same. In float32 a batch never changes the tokens.

Decided here: greedy decoding unless a temperature is given; 256 tokens unless `--max-tokens` is. Messages go through the tokenizer's chat
template; a model without one reads the system's and the user's messages as one text, with blank lines between them. Stop sequences are cut
off after writing.

Refused: model arguments that nobody takes; options of generation that floatlens cannot honour, instead of ignoring them; tools; anything
but text; answers in a conversation where there is no chat template to tell them apart.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio  # pyright: ignore[reportMissingImports]  # comes with inspect_ai
from inspect_ai._util.error import PrerequisiteError  # pyright: ignore[reportMissingImports]  # private, and what all providers raise
from inspect_ai.model import (  # pyright: ignore[reportMissingImports]  # an extra: floatlens[inspect]
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from rich.markup import escape

from floatlens.errors import Refusal, shown

if TYPE_CHECKING:
    from floatlens.models.language_model import Generation

OWN = ("chat",)
BATCH_SIZE = 8
MAX_TOKENS = 256
HONOURED = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop_seqs")
ABOUT_REQUESTS = (
    "max_retries",
    "timeout",
    "attempt_timeout",
    "stream_idle_timeout",
    "max_connections",
    "adaptive_connections",
    "system_message",  # inspect_ai puts it among the messages
    "max_tool_output",
    "fail_on_refusal",
    "cache",
    "cache_prompt",
)
"""Options that inspect_ai follows itself, or that change nothing in what is written."""
WITHOUT_EFFECT = {"num_choices": 1, "best_of": 1, "frequency_penalty": 0, "presence_penalty": 0, "logprobs": False, "batch": False}
"""Values of other options that ask for nothing."""


@modelapi(name="floatlens")
def floatlens() -> type[ModelAPI]:
    """The provider, for inspect_ai's registry."""
    return FloatlensAPI


class Unfit(Refusal, PrerequisiteError):
    """A refusal that the command of inspect_ai prints as a sentence, without a traceback."""

    def __init__(self, sentence: str) -> None:
        Exception.__init__(self, sentence)
        self.message = escape(sentence)  # it is printed with the markup of rich


@dataclass(eq=False)
class Waiting:
    """A request that waits to be written, and what became of it."""

    prompt: tuple[int, ...]
    how: tuple[Any, ...]  # length, and the sampler's options
    seed: int
    written: "Generation | None" = None
    failure: Exception | None = None
    seconds: float = 0.0

    @property
    def is_done(self) -> bool:
        return self.written is not None or self.failure is not None


class FloatlensAPI(ModelAPI):
    """A floatlens model for inspect_ai; `model_args` are those of `-M`."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008  # as inspect_ai calls it
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        try:
            self._set_up(config, model_args)
        except Refusal as refusal:
            raise Unfit(str(refusal)) from refusal
        self._asked: Counter[str] = Counter()
        self._waiting: list[Waiting] = []
        self._writing = anyio.Lock()

    def _set_up(self, config: GenerateConfig, arguments: dict[str, Any]) -> None:
        from floatlens.harnesses.model import set_up, truth

        if self.base_url is not None:
            raise Refusal("A floatlens model runs in this process and has no address. Leave --model-base-url out.")
        chat = arguments.pop("chat", None)
        self._chat = None if chat is None else truth("chat", chat)
        self.model = set_up(self.model_name, {"batch_size": BATCH_SIZE, **arguments}, OWN, "-M")
        if self._chat and not self._has_template:
            raise Refusal(f"{self.model.lm.name} has no chat template. Leave -M chat=true out.")
        self._refuse_what_cannot_be_honoured(config)

    @property
    def _has_template(self) -> bool:
        return bool(getattr(self.model.lm.tokenizer, "chat_template", None))

    def max_tokens(self) -> int:
        """How many tokens are written where nothing is said."""
        return MAX_TOKENS

    def max_connections(self) -> int:
        """How many requests are sent at a time: as many as run together."""
        return self.model.batch_size

    def connection_key(self) -> str:
        """What requests that share a limit have in common: the model."""
        return self.model_name

    async def tokenize(self, text: str) -> list[int]:
        """A text in the model's tokens."""
        return self.model.lm.encode(text, chat=False).tokens

    async def count_text_tokens(self, text: str) -> int:
        """How many tokens a text has."""
        return len(await self.tokenize(text))

    async def generate(self, input: list[ChatMessage], tools: list[Any], tool_choice: Any, config: GenerateConfig) -> ModelOutput:
        """What the model writes after the messages."""
        if tools:
            raise Refusal(f"{self.model.lm.name} does not call tools; choose a task without them.")
        self._refuse_what_cannot_be_honoured(config)
        request = self._request(input, config)
        self._waiting.append(request)
        try:
            await anyio.sleep(0)  # so that requests that arrive together are written together
            async with self._writing:
                if not request.is_done:
                    await anyio.to_thread.run_sync(self._write, self._batch_for(request))
        finally:  # a request that was given up waits no longer
            self._waiting = [waiting for waiting in self._waiting if waiting is not request]
        if request.failure is not None:
            raise request.failure
        assert request.written is not None
        return self._output(request, request.written, config.stop_seqs or [])

    def _request(self, messages: Sequence[Any], config: GenerateConfig) -> Waiting:
        """The messages in tokens, and how to go on from them."""
        texts = [{"role": message.role, "content": _text(message)} for message in messages]
        if self._has_template and self._chat is not False:
            encoded = self.model.lm.encode(texts)
        else:
            if other := [text["role"] for text in texts if text["role"] not in ("system", "user")]:
                raise Refusal(
                    f"{self.model.lm.name} reads no chat template, so it cannot tell who says what in a conversation with a message of "
                    f"the {other[0]}. Choose a task with a single question."
                )
            encoded = self.model.lm.encode("\n\n".join(text["content"] for text in texts), chat=False)
        options = {name: value for name in ("temperature", "top_p", "top_k") if (value := getattr(config, name)) is not None}
        gen_length = MAX_TOKENS if config.max_tokens is None else config.max_tokens
        from floatlens.decoding.tokens import warn_of_unknown_tokens

        warn_of_unknown_tokens(self.model.lm.name, self.model.lm.tokenizer, [encoded])
        name = f"{config.seed}\n{encoded.text}"
        seed = self.model.seed_for(name, self._asked[name])
        self._asked[name] += 1  # another epoch of a sample draws anew
        return Waiting(tuple(encoded.tokens), (gen_length, tuple(options.items())), seed)

    def _refuse_what_cannot_be_honoured(self, config: GenerateConfig) -> None:
        """Refuse options that would be ignored, and options that the model's sampler does not have."""
        given = {name: value for name, value in config if value is not None}
        for name, value in given.items():
            if name in HONOURED or name in ABOUT_REQUESTS or (name in WITHOUT_EFFECT and value == WITHOUT_EFFECT[name]):
                continue
            raise Refusal(
                f"floatlens models cannot honour {name}={shown(repr(value))}. They take: {', '.join(HONOURED)}. "
                f"Leave --{name.replace('_', '-')} out."
            )
        self.model.refuse_options({name: given[name] for name in ("temperature", "top_p", "top_k") if name in given})

    def _batch_for(self, request: Waiting) -> list[Waiting]:
        """The request and those that wait for the same, in the order in which they came; they wait no longer."""
        others = [waiting for waiting in self._waiting if waiting is not request and waiting.how == request.how]
        batch = [request, *others[: self.model.batch_size - 1]]
        self._waiting = [waiting for waiting in self._waiting if waiting not in batch]
        return batch

    def _write(self, batch: Sequence[Waiting]) -> None:
        """Write after the prompts of a batch; where that fails, each by itself, so that one prompt does not fail the others."""
        gen_length, options = batch[0].how
        began = perf_counter()
        try:
            written = self.model.write(
                [waiting.prompt for waiting in batch], gen_length, [waiting.seed for waiting in batch], **dict(options)
            )
        except Exception as failure:  # it belongs to the request, and inspect_ai reports it with its sample
            if len(batch) == 1:
                batch[0].failure = failure
                return
            for waiting in batch:
                self._write([waiting])
            return
        for waiting, generation in zip(batch, written, strict=True):
            waiting.written, waiting.seconds = generation, perf_counter() - began

    def _output(self, request: Waiting, written: "Generation", stops: Sequence[str]) -> ModelOutput:
        cut = self.model.cut(written, stops)
        message = ChatMessageAssistant(content=cut.text, model=self.model_name, source="generate")
        read, wrote = len(request.prompt), len(written.tokens)
        return ModelOutput(
            model=self.model_name,
            choices=[ChatCompletionChoice(message=message, stop_reason="stop" if cut.stopped else "max_tokens")],
            usage=ModelUsage(input_tokens=read, output_tokens=wrote, total_tokens=read + wrote),
            time=request.seconds,
            metadata={"steps": written.steps, **({} if written.removed is None else {"attention_removed": written.removed})},
        )


def _text(message: Any) -> str:
    """The text of a message; refuses images, audio and the like."""
    parts = [] if isinstance(message.content, str) else message.content
    if other := [part.type for part in parts if part.type != "text"]:
        raise Refusal(f"A message holds {other[0]}, and floatlens models read text. Leave it out.")
    return message.text
