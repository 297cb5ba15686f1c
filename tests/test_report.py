"""What reports say, on rules that do not change: every kind of answer, wide and narrow, plain and painted."""

from __future__ import annotations

from pathlib import Path

import pytest

from moe_align import Decision, Facts, Policy, load_policy
from moe_align.cost import layer_cost, rank_experts
from moe_align.known import known
from moe_align.packs import Amount, Multiple, Outcome, Pad, Refine
from moe_align.report.lines import Row, Style, folded, prose_table, rows, table
from moe_align.report.outcomes import demands_text, outcome_text
from moe_align.report.resolve import Answer, is_yes, resolve_text
from moe_align.report.words import accepts_text, fact_text, gib, listed, value_text, values_text
from moe_align.space import Ints
from moe_align.versions import VersionSet, parse_range

LAB = Path(__file__).parent / "data" / "rules"
PRO = {"hidden": 7168, "intermediate": 3072, "experts": 384, "tp": 8}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(LAB, environ={}, built_in=False)


@pytest.fixture(scope="module")
def mirror() -> Policy:
    return load_policy(environ={})


def painted(text: str, role: str) -> str:
    return f"<{role}>{text}</>"


def answer(policy: Policy, facts: Facts, **more: object) -> Answer:
    decision = policy.resolve(facts)
    differences = policy.differences(facts) if decision.status == "decided" else ()
    values = known(policy.stack.vocabulary, facts).values
    covered = {"vllm": parse_range(">=0.20,<0.34")}
    return Answer(decision, differences, values, covered, ["built-in"], **more)  # type: ignore[arg-type]


def said(policy: Policy, facts: Facts, **more: object) -> list[str]:
    return resolve_text(answer(policy, facts, **more), Style()).split("\n")


def test_multiples_rule_and_what_would_differ(policy: Policy) -> None:
    assert said(policy, Facts(backend="tile", arch="gfx950")) == [
        "hidden × 128 · intermediate × 128          lab/tile-new",
        "why       the tile of this kernel (lab#1)",
        "implied   mxfp4 · rocm",
        "assumed   vLLM 0.33.0 · TP 1 · EP off · DP 1 · method default",
        "differs   vLLM < 0.28 → × 256 · method gpt_oss → × 256",
        "warning   the kernel steps hidden by 256 and says nothing (lab-contracts/silent-hidden)",
    ]


def test_sizes_show_the_sum_behind_them(policy: Policy) -> None:
    lines = said(policy, Facts(backend="tile", arch="gfx942", hidden=2880, intermediate=2880, tp=8))
    assert lines[0] == "hidden 2880 → 3072 · intermediate 2880 / 8 = 360 → 512  lab/tile"


def test_undecided_says_what_each_value_would_mean(policy: Policy) -> None:
    assert said(policy, Facts(backend="tile"))[:1] == ["undecided: depends on arch"]
    assert "if        arch gfx950 → × 128" in said(policy, Facts(backend="tile"))
    assert "if        arch gfx942 → × 256" in said(policy, Facts(backend="tile"))


def test_rejected_has_the_exception_and_the_rule(policy: Policy) -> None:
    assert said(policy, Facts(backend="refusing"))[:4] == [
        "rejected: this backend takes no experts",
        "raises    ValueError",
        "rule      lab/refusing",
        "why       for tests (lab#3)",
    ]


def test_a_reason_is_not_given_twice(policy: Policy) -> None:
    lines = said(policy, Facts(backend="strict", hidden=128, intermediate=100))
    assert lines[0] == "rejected: intermediate 100 is not a multiple of 128: the kernel asserts it"
    assert not any(line.startswith("why") for line in lines)


def test_what_is_demanded_is_not_said_to_be_made(policy: Policy) -> None:
    assert said(policy, Facts(backend="strict"))[0].startswith("hidden native · intermediate must be × 128")


def test_unknown_says_which_pack_does_not_cover_it(policy: Policy) -> None:
    lines = said(policy, Facts(backend="exact", vllm="0.40"))
    assert lines[0] == "unknown: pack `lab` covers vllm >=0.20,<0.34, not 0.40"
    assert lines[-1].startswith("see       moe-align explain")


def test_contracts_that_are_broken_are_named_by_what_they_break(policy: Policy) -> None:
    decided = answer(policy, Facts(backend="exact", hidden=2944, intermediate_per_partition=60))
    text = resolve_text(decided, Style())
    assert "unsafe    hidden 2944 is not a multiple of 256: the kernel steps" in text
    assert "slower    intermediate 60 is not a multiple of 256: 256 is faster" in text
    assert "raises    intermediate 60 is not at least 64" in text
    assert not is_yes(decided.decision)


def test_a_slow_kernel_is_still_a_yes(policy: Policy) -> None:
    assert is_yes(policy.resolve(Facts(backend="exact", hidden=256, intermediate_per_partition=64)))
    assert not is_yes(policy.resolve(Facts(backend="tile")))


def test_notes_and_layers_have_rows(policy: Policy) -> None:
    one = answer(policy, Facts(backend="exact"), notes=["vllm 0.33.1rc1: …"])._replace(
        layers=["mine", "built-in"]
    )
    lines = resolve_text(one, Style()).split("\n")
    assert "note      vllm 0.33.1rc1: …" in lines
    assert "rules     mine over built-in" in lines


def test_fused_experts_are_counted_even_without_a_model(policy: Policy) -> None:
    assert "experts   + 1 fused shared" in said(policy, Facts(backend="exact", fused_shared_experts=1))
    lines = said(policy, Facts(backend="exact", fused_shared_experts=1, experts=384))
    assert "experts   384 + 1 fused shared = 385" in lines


def test_narrow_text_fits_and_paint_does_not_count(policy: Policy) -> None:
    one = answer(policy, Facts(backend="tile", arch="gfx950"))
    narrow = resolve_text(one, Style(40))
    assert max(map(len, narrow.split("\n"))) <= 40
    lines = resolve_text(one, Style(40, painted)).split("\n")
    assert lines[0] == "<strong>hidden × 128 · intermediate × 128</>"
    assert "<label>why       </>the tile of this kernel" in lines


def test_rows_break_between_items_before_inside_one() -> None:
    style = Style(34)
    listed_rows = [Row("label", ["one two three", "four five six", "a long item that is broken"])]
    assert rows(style, listed_rows) == [
        "label     one two three",
        "          four five six",
        "          a long item that is",
        "          broken",
    ]
    assert rows(style, [Row("label", [])]) == ["label     "]


def test_a_word_that_is_too_long_stays_whole() -> None:
    assert folded("a verylongword b", 6) == ["a", "verylongword", "b"]


HEAD, BODY = ["name", "size", "note"], [["a", "1 → 2", "x"], ["bb", "10.50", "y"]]


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (None, ["name    size   note", "a      1 → 2   x", "bb     10.50   y"]),
        (17, ["name   size  note", "a     1 → 2  x", "bb    10.50  y"]),
        (12, ["name   size", "a     1 → 2", "bb    10.50", "(not shown", "for want of", "room: note)"]),
        (9, ["name   size", "a     1 → 2", "bb    10.50", "(not", "shown for", "want of", "room:", "note)"]),
    ],
)
def test_tables_move_together_before_columns_go(width: int | None, lines: list[str]) -> None:
    assert table(Style(width), HEAD, BODY) == lines


def test_prose_goes_on_below() -> None:
    lines = prose_table(Style(32), ["key", ""], [["a", "one two three four five six seven"]])
    assert lines == ["key", "a     one two three four five", "      six seven"]
    assert prose_table(Style(), ["", ""], []) == []


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("engine", "vllm", "vLLM"),
        ("engine", "mine", "mine"),
        ("vllm", "0.33.0", "vLLM 0.33.0"),
        ("ep", 1, "EP off"),
        ("ep", 8, "EP 8"),
        ("tp", 1, "TP 1"),
        ("moe_tp", 8, "MoE-TP 8"),
        ("lora", "true", "lora"),
        ("lora", "false", "no lora"),
        ("scheme", "mxfp4", "mxfp4"),
        ("model_type", "other", "model type other"),
        ("env.FOO", "1", "FOO=1"),
        ("has.bar", "true", "has bar"),
        ("has.bar", "false", "without bar"),
    ],
)
def test_facts_read_as_words(key: str, value: object, text: str) -> None:
    assert fact_text(key, value) == text


COVERED = parse_range(">=0.14,<0.34")


@pytest.mark.parametrize(
    ("releases", "text", "plain"),
    [
        (">=0.14,<0.28", "vLLM < 0.28", "<0.28"),
        (">=0.28,<0.34", "vLLM ≥ 0.28", ">=0.28"),
        (">=0.19,<0.28", "vLLM ≥ 0.19 and < 0.28", ">=0.19,<0.28"),
        ("==0.27.1", "vLLM 0.27.1", "==0.27.1"),
        (">=0.14,<0.34", "vLLM any", "any"),
    ],
)
def test_bounds_where_the_rules_end_are_left_out(releases: str, text: str, plain: str) -> None:
    assert accepts_text("vllm", parse_range(releases), COVERED) == text
    assert values_text("vllm", parse_range(releases), COVERED) == plain


def test_other_values_read_as_they_are() -> None:
    assert accepts_text("method", frozenset({"quark", "online"})) == "method online, quark"
    assert values_text("tp", Ints.between(2, None)) == ">= 2"
    assert values_text("vllm", VersionSet.at_least((0, 28))) == ">=0.28"
    assert value_text("vllm", (0, 28)) == "0.28"
    assert value_text("arch", None) == "open"
    assert listed("abcde", 2) == "a, b and 3 more"
    assert gib(None) == "–"
    assert gib(3 * 2**29) == "1.50"


NATIVE = Multiple("times", (1,))
OUTCOMES = {
    "both native": Outcome("align", NATIVE, NATIVE),
    "both × 128": Outcome("align", Multiple("times", (128,)), Multiple("times", (128,))),
    "hidden × 256, intermediate native": Outcome("align", Multiple("times", (256,)), NATIVE),
    "require hidden native, intermediate × 128": Outcome("require", NATIVE, Multiple("times", (128,))),
    "set intermediate × at least 64": Outcome("set", None, Multiple("times", (1,), 64)),
    "reject: no": Outcome("reject", target="no"),
    "reject: no, raises ValueError": Outcome("reject", target="no", error="ValueError"),
    "use marlin": Outcome("use", target="marlin"),
    "hidden + 256 bytes of the row stride": Outcome(
        "add", add=(("hidden", Amount(256, "bytes")),), stride=True
    ),
    "hidden + 64 elements": Outcome("add", add=(("hidden", Amount(64)),)),
    "tell hidden_pad exact, intermediate_pad floor(64) × 2": Outcome(
        "declare", pads=(Pad("exact"), Pad("floor", 64, 2))
    ),
    "divide block_n to fit intermediate, at least 64, else reject: none fits": Outcome(
        "refine",
        refine=Refine(("block_n",), "intermediate", 64),
        otherwise=Outcome("reject", target="none fits"),
    ),
    "both native, +1 experts, scale rows of w13 × 256, scale columns of w2 × 8": Outcome(
        "align", NATIVE, NATIVE, experts=1, rows=(("w13", 256),), columns=(("w2", 8),)
    ),
}


@pytest.mark.parametrize("text", OUTCOMES)
def test_outcomes_read_as_what_they_do(text: str) -> None:
    assert outcome_text(OUTCOMES[text]) == text


def test_demands_read_as_what_they_are(policy: Policy) -> None:
    texts = {contract.id: demands_text(contract) for contract in policy.stack.all_contracts()}
    assert texts == {
        "silent-hidden": "hidden a multiple of 256",
        "slow-intermediate": "intermediate a multiple of 256",
        "raises-small": "intermediate at least 64",
        "pads": "hidden_pad no more than the real padding",
    }


def gib_of(policy: Policy, layers: int = 61, **given: object) -> tuple[str, str]:
    facts = Facts.of({"scheme": "mxfp4", "activation": "silu", **given})
    cost = layer_cost(policy.resolve(facts), known(policy.stack.vocabulary, facts).values)
    assert cost is not None
    return gib(cost.created * layers), gib(None if cost.resident is None else cost.resident * layers)


def test_bytes_of_a_real_model(mirror: Policy) -> None:
    assert gib_of(mirror, backend="aiter_bf16", **PRO) == ("95.70", "96.33")
    assert gib_of(mirror, backend="aiter_bf16", vllm="0.26.0", **PRO)[0] == "127.60"
    assert gib_of(mirror, backend="aiter_bf16", ep=8, **PRO) == ("95.70", "95.70")
    flash = {"hidden": 4096, "intermediate": 2048, "experts": 256, "tp": 8}
    assert gib_of(mirror, layers=43, backend="aiter_bf16", **flash) == ("17.13", "17.13")


def test_one_scale_for_a_whole_row_costs_as_much_as_it_is(mirror: Policy) -> None:
    given = {"scheme": "int4_wna16", "method": "gptq", "backend": "marlin", "activation": "silu"}
    sizes = {"hidden": 2048, "intermediate": 768, "experts": 128}

    def created(group: int) -> int:
        facts = Facts.of({**given, **sizes, "group": group})
        cost = layer_cost(mirror.resolve(facts), known(mirror.stack.vocabulary, facts).values)
        assert cost is not None
        return cost.created

    grouped, whole = 2 * 768 * (2048 // 128) + 2048 * (768 // 128), 2 * 768 + 2048
    # A scale is two bytes, and its zero point half of one.
    assert created(128) - created(1) == 128 * (grouped - whole) * 5 // 2


def test_an_uneven_share_and_fused_experts_are_those_of_the_fullest_rank(mirror: Policy) -> None:
    facts = Facts(backend="aiter_bf16", activation="silu", experts=10, tp=4, ep=4, fused_shared_experts=1)
    decision: Decision = mirror.resolve(facts)
    assert rank_experts(decision, known(mirror.stack.vocabulary, facts).values) == 4


@pytest.mark.parametrize(
    "missing",
    [{"experts": None}, {"hidden": None}, {"activation": None}, {"tp": 7}],
)
def test_what_is_not_known_costs_nothing_that_could_be_said(
    policy: Policy, missing: dict[str, object]
) -> None:
    given = {"backend": "exact", "activation": "silu", **PRO, **missing}
    facts = Facts.of(given)
    assert layer_cost(policy.resolve(facts), known(policy.stack.vocabulary, facts).values) is None


def test_a_scheme_that_needs_its_blocks_costs_nothing_without_them(policy: Policy) -> None:
    facts = Facts(backend="exact", activation="silu", hidden=256, intermediate=256, experts=8)
    values = {**known(policy.stack.vocabulary, facts).values, "scheme": "fp8_block"}
    assert layer_cost(policy.resolve(facts), values) is None
    blocked = {**values, "block_n": 128, "block_k": 128}
    cost = layer_cost(policy.resolve(facts), blocked)
    assert cost is not None
    assert cost.native == cost.created
    assert (
        layer_cost(policy.resolve(facts)._replace(storage=(("hidden", Amount(1, "bytes"), False),)), blocked)
        is None
    )
