"""Generation with a KV cache, compared with passes without one."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import qkscope
from qkscope import Array, HookPoint, Model
from conftest import GOLDEN, FwdHook, some_ids, typed_calls


def greedy(model: Model, ids: np.ndarray, count: int, hooks: Iterable[FwdHook] = ()) -> list[int]:
    """Returns greedy tokens computed by passes over the whole text."""
    longer: list[int] = list(ids)
    for _ in range(count):
        longer.append(int(np.argmax(model.run_with_hooks(longer, hooks, positions=-1)[0])))
    return longer


def generate_ids(model: Model, *args: Any, **options: Any) -> np.ndarray:
    return np.asarray(model.generate(*args, **options))


def test_tokens_match_passes_without_a_cache(tiny: Model) -> None:
    ids = some_ids(tiny, 7)
    found = generate_ids(tiny, ids, 12, stop_at_eos=False)
    assert found.dtype == np.int32
    assert found.tolist() == greedy(tiny, ids, 12)
    assert generate_ids(tiny, ids, 12, stop_at_eos=False, return_type="new_tokens").tolist() == found.tolist()[7:]


def test_text_prompts_return_text(demo: Model) -> None:
    prompt = "Entry 1, day 5."
    text = demo.generate(prompt, 20, stop_at_eos=False)
    assert text.startswith(prompt)
    tokens = demo.generate(demo.to_tokens(prompt), 20, stop_at_eos=False)
    assert str(demo.to_string(tokens)).endswith(text[len(prompt):])
    assert demo.generate(prompt, 20, stop_at_eos=False, return_type="new_text") == text[len(prompt):]
    pieces: list[str] = []
    assert demo.generate(prompt, 20, stop_at_eos=False, stream=pieces.append) == text
    assert prompt + "".join(pieces) == text and len(pieces) > 5
    stop = text[-6:-3]
    stopped = demo.generate(prompt, 20, stop_at_eos=False, stop=stop)
    assert stopped == text[: text.index(stop, len(prompt))]


def test_verbose_prints_the_text(demo: Model, capsys: pytest.CaptureFixture[str]) -> None:
    text = demo.generate("Entry 1", 8, stop_at_eos=False, stream=True, return_type="new_text")
    assert capsys.readouterr().out == text + "\n"


def test_prompts_of_different_lengths_match_single_prompts(demo: Model) -> None:
    prompts = ["Entry 1, day 5.", "The", "A house by the sea"]
    together = demo.generate(prompts, 10, stop_at_eos=False)
    assert together == [demo.generate(prompt, 10, stop_at_eos=False) for prompt in prompts]
    ids = [some_ids(demo, 3), some_ids(demo, 9)]
    assert [len(row) for row in demo.generate(ids, 4, stop_at_eos=False)] == [7, 13]


def test_equal_seeds_give_equal_tokens(demo: Model) -> None:
    def draw(seed: int, **options: Any) -> Any:
        return demo.generate("Entry 1", 20, temperature=1.5, seed=seed, stop_at_eos=False, **options)

    assert draw(1) == draw(1) != draw(2)
    assert draw(1, top_k=1) == demo.generate("Entry 1", 20, stop_at_eos=False) == draw(3, top_p=1e-6)


def test_hooks_edit_while_generating(demo: Model) -> None:
    def ablate(z: Array, hook: HookPoint) -> None:
        z[:, 3] = 0

    ids = some_ids(demo, 6)
    hooks = [("blocks.1.attn.hook_z", ablate)]
    found = generate_ids(demo, ids, 10, stop_at_eos=False, fwd_hooks=hooks)
    assert found.tolist() == greedy(demo, ids, 10, hooks)
    with demo.hooks(hooks):
        assert generate_ids(demo, ids, 10, stop_at_eos=False).tolist() == found.tolist()


def test_hooks_see_each_position_once(demo: Model) -> None:
    seen: list[int] = []
    patterns: list[tuple[int, ...]] = []
    hooks: list[FwdHook] = [("blocks.0.hook_resid_pre", lambda x: seen.append(x.shape[0])),
             ("blocks.0.attn.hook_pattern", lambda x: patterns.append(x.shape[1:]))]
    demo.generate(some_ids(demo, 6), 4, stop_at_eos=False, fwd_hooks=hooks)
    assert seen == [6, 1, 1, 1]
    assert patterns == [(6, 6), (1, 7), (1, 8), (1, 9)]


def test_edited_logits_change_the_tokens(demo: Model) -> None:
    def only(logits: Array, hook: HookPoint) -> None:  # [text, d_vocab]
        logits[:] = -np.inf
        logits[:, 17] = 0

    found = generate_ids(demo, [1, 2, 3], 4, fwd_hooks=[("logits", only)], temperature=1.0)
    assert found.tolist() == [1, 2, 3, 17, 17, 17, 17]


def test_stop_tokens_and_texts_end_generation(demo: Model) -> None:
    ids = [1, 2, 3]
    whole = generate_ids(demo, ids, 10, stop_at_eos=False).tolist()
    stopped = generate_ids(demo, ids, 10, stop_at_eos=False, stop_tokens=[whole[6]]).tolist()
    assert stopped == whole[: whole.index(whole[6], 3) + 1]
    calls: list[str] = []

    def end(text: str) -> bool:
        calls.append(text)
        return False

    demo.generate("Entry", 10, stream=end)
    assert len(calls) == 1


def test_exceptions_of_hooks_are_raised(demo: Model) -> None:
    def fail(text: str) -> None:
        raise KeyError(text)

    with pytest.raises(KeyError):
        demo.generate("Entry", 10, stream=fail, stop_at_eos=False)
    assert demo.generate("Entry", 2)


@pytest.mark.parametrize(
    ("call", "message"),
    typed_calls([
        (lambda m: m.generate("Entry", 0), "max_new_tokens is 0"),
        (lambda m: m.generate("Entry", "many"), "max_new_tokens"),
        (lambda m: m.generate("Entry", temperature=-1), "temperature is -1"),
        (lambda m: m.generate("Entry", top_k=0), "top_k"),
        (lambda m: m.generate("Entry", top_p=2.0), "top_p is 2"),
        (lambda m: m.generate("Entry", seed=-1), "seed"),
        (lambda m: m.generate("Entry", return_type="words"), "return_type"),
        (lambda m: m.generate("Entry", stream=5), "stream"),
        (lambda m: m.generate(["a", "b"], stream=True), "several"),
        (lambda m: m.generate("Entry", stop=3), "stop: found 3, expected a text"),
        (lambda m: m.generate("Entry", stop_tokens=["a"]), "stop_tokens='a'"),
        (lambda m: m.generate("Entry", max_tokens=5), "no argument 'max_tokens'; did you mean 'max_new_tokens'"),
        (lambda m: m.generate("Entry", stop=[""]), "stop text is empty"),
        (lambda m: m.generate([]), "tokens"),
        (lambda m: m.generate([10**7]), "token id 10000000"),
        (lambda m: m.generate([1], fwd_hooks=[("blocks.0.hook_nothing", print)]), "did you mean"),
        (lambda m: m.generate([1], 10**13), "take fewer texts or fewer new tokens"),
    ]),
)
def test_wrong_arguments_raise_input_errors(demo: Model, call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(qkscope.InputError, match=message):
        call(demo)


def test_ids_are_generated_without_a_tokenizer() -> None:
    model = qkscope.load(GOLDEN / "gpt2", device="cpu")
    assert len(model.generate([1, 2], 5, stop_at_eos=False)) == 7
    assert len(model.generate(some_ids(model, 60), 50, stop_at_eos=False)) == model.cfg.n_ctx
