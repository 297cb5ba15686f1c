"""The shipped rules have nothing that lint finds and nobody has looked at; each finding in small."""

from __future__ import annotations

from pathlib import Path

import pytest

from moe_align import Facts, load_policy
from moe_align.errors import Location, Problem
from moe_align.findings import Finding, fails, github, of_problem, plain, text
from moe_align.lint import lint
from moe_align.packs import PHASES
from moe_align.regions import Regions, facts_of, friendly
from moe_align.reviewed import reviewed, unreviewed
from moe_align.space import FEW, Index, Ints, Region, Space, outside

HEAD = """language: 1
pack: {pack}
phase: {phase}
for: {{engine: vllm, scheme: ours, backend: mine}}
vocabulary:
  scheme: {{ours: {{note: our own}}}}
  backend: {{mine: {{note: ours, implies: {{platform: rocm}}}}}}
"""


def found(tmp_path: Path, rules: str, phase: str = "allocate") -> list[Finding]:
    file = tmp_path / "mine.yaml"
    file.write_text(HEAD.format(pack="mine", phase=phase) + rules, encoding="utf-8")
    stack = load_policy(file, environ={}).stack
    return [finding for finding in lint(stack) if "mine" in f"{finding.rule} {finding.message}"]


ALIGNED = "    align: {multiple}\n    why: so it is\n    source: us#1\n"


def rule(name: str, when: str, multiple: object = 64, unless: str = "") -> str:
    exception = f"    unless: {unless}\n" if unless else ""
    return f"  - id: {name}\n    when: {when}\n{exception}" + ALIGNED.format(multiple=multiple)


CASES = [
    ("L701", "is never reached", rule("all", "{platform: rocm}") + rule("late", "{arch: gfx950}", 128)),
    ("L702", "exclude each other", rule("cuda", "{platform: cuda}") + rule("all", "{platform: rocm}")),
    ("L703", "is redundant", rule("some", "{arch: gfx950}") + rule("all", "{platform: rocm}")),
    ("L704", "none of its rules decides", rule("some", "{arch: gfx950}")),
    (
        "L705",
        "nothing decides >=0.20,<0.22",
        rule("old", '{vllm: "<0.20"}') + rule("new", '{vllm: ">=0.22"}', 128),
    ),
    (
        "L705",
        "between, `mine/else` decides",
        rule("old", '{vllm: "<0.20"}')
        + rule("new", '{vllm: ">=0.22"}')
        + rule("else", "{platform: rocm}", 256),
    ),
    ("L708", "has no `source`", "  - id: bare\n    align: native\n"),
    (
        "L709",
        "never holds",
        rule("some", "{arch: gfx950}", unless="{arch: gfx942}") + rule("all", "{lora: false}"),
    ),
]


@pytest.mark.parametrize(
    ("code", "message", "rules"), CASES, ids=[f"{case[0]}-{case[1][:12]}" for case in CASES]
)
def test_each_finding(tmp_path: Path, code: str, message: str, rules: str) -> None:
    findings = found(tmp_path, f"rules:\n{rules}")
    assert any(finding.code == code and message in finding.message for finding in findings), text(findings)


def test_a_rule_that_does_nothing_is_redundant_where_nothing_is_needed(tmp_path: Path) -> None:
    findings = found(tmp_path, "rules:\n  - id: idle\n    align: native\n    source: us#1\n", "repack")
    assert [finding.code for finding in findings] == ["L703"]


def test_a_value_that_nobody_names_is_a_note(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("language: 1\npack: mine\nvocabulary:\n  backend: {mine: {}}\n", encoding="utf-8")
    notes = [finding for finding in lint(load_policy(file, environ={}).stack) if finding.code == "L707"]
    assert any("`mine`" in note.message for note in notes)
    assert not fails(notes)


def test_contracts_at_odds(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    contract = (
        "  - id: {name}\n    when: {{backend: cpu}}\n    require: {{topk: {{{bound}}}}}\n"
        "    breaks: raises\n    why: so\n    source: us#1\n"
    )
    contracts = contract.format(name="few", bound="max: 4") + contract.format(name="many", bound="exactly: 8")
    file.write_text(f"language: 1\npack: mine\ncontracts:\n{contracts}", encoding="utf-8")
    findings = [
        finding for finding in lint(load_policy(file, environ={}).stack) if finding.rule == "mine/few"
    ]
    assert [(finding.code, finding.rules) for finding in findings] == [("L706", ("mine/many",))]


#: Facts that follow from others when a layer is asked about, while regions know them as facts of their own.
DERIVED = {"native_hidden", "native_intermediate", "intermediate", "tp", "dp", "pcp", "ep", "sp"}


def test_points_are_decided_by_the_rule_whose_region_they_are_from() -> None:
    """One matcher: a point of each effective region, asked of the resolver, goes to the same rule."""
    policy = load_policy(environ={})
    regions = Regions(policy.stack)
    checked = 0
    for name in PHASES:
        if name in ("select", "launch", "repack"):
            continue
        for part in regions.phase(name).parts:
            box = next(regions.phase(name).decided(part), None)
            if part.rule is None or box is None:
                continue
            point = friendly(policy.stack, box)
            if any(asked.sets.keys() & DERIVED for _, asked in regions.phase(name).near(box)):
                continue
            shown = {key: value for key, value in point.items() if key != "intermediate"}
            decision = policy.resolve(facts_of(policy.stack, shown))
            steps = {step.phase: step.rule for step in decision.steps}
            # An earlier phase may change the sizes, or refuse the layer.
            if {"model", "dispatch"} & steps.keys() - {name}:
                continue
            assert steps.get(name) is part.rule, (part.address, shown)
            checked += 1
    assert checked > 40


def test_the_shipped_rules_have_no_finding_that_nobody_looked_at() -> None:
    stack = load_policy(environ={}).stack
    findings = unreviewed(lint(stack), reviewed(stack.layers))
    assert not fails(findings), text([finding for finding in findings if finding.level != "note"])


def test_what_is_redundant_is_said_by_where_it_decides(tmp_path: Path) -> None:
    """Not by what it asks for: an earlier rule takes part of that."""
    rules = rule("first", "{arch: gfx942}", 128) + rule("some", "{arch: [gfx942, gfx950]}")
    findings = found(tmp_path, "rules:\n" + rules + rule("all", "{platform: rocm}"))
    (redundant,) = [finding for finding in findings if finding.code == "L703"]
    assert redundant.where == ("arch: gfx950 · backend: mine · engine: vllm · scheme: ours",)


FINDING = Finding(
    "L701",
    "is never reached",
    Location("rules/a.yaml", 3, 5),
    "a/b",
    fix="move it",
    where=("backend: aiter",),
    facts={"backend": "aiter", "lora": "true", "bias": "false", "env.SWITCH": "1", "has.thing": "true"},
    rules=("a/c",),
)


def test_a_finding_for_people() -> None:
    assert text([FINDING]) == (
        "rules/a.yaml:3:5: `a/b` is never reached [L701]\n"
        "  where: backend: aiter\n"
        "  by: a/c\n"
        "  try: moe-align resolve --backend aiter --lora --no-bias --env SWITCH=1 --has thing=true\n"
        "  fix: move it"
    )


def test_a_finding_for_github() -> None:
    assert github([FINDING]) == (
        "::error file=rules/a.yaml,line=3,col=5,title=L701::a/b is never reached%0Abackend: aiter%0Amove it"
    )


def test_a_problem_is_a_finding() -> None:
    assert plain(of_problem(Problem("R203", "unknown", "write it")))["code"] == "R203"


def test_facts_of_a_point_leave_out_what_is_assumed() -> None:
    stack = load_policy(environ={}).stack
    assert facts_of(stack, {"engine": "vllm", "tp": 1, "backend": "aiter"}) == Facts(backend="aiter")


def many(count: int, backends: int = 24) -> str:
    """Rules by backend, of which those for the last are missing."""
    names = [f"kernel_{number}" for number in range(backends)]
    words = "".join(f"    {name}: {{note: one of many}}\n" for name in names)
    rules = "".join(
        f"  - {{id: r{number}, when: {{backend: {names[number % (backends - 1)]}, "
        f"intermediate_per_partition: {{min: {count - number}}}}}, align: {64 + number}, "
        "why: so, source: u#1}\n"
        for number in range(count)
    )
    return (
        "language: 1\npack: mine\nphase: allocate\nfor: {engine: vllm, scheme: ours}\n"
        f"vocabulary:\n  scheme: {{ours: {{note: our own}}}}\n  backend:\n{words}rules:\n{rules}"
    )


def test_many_rules_are_looked_at_apart_and_nothing_is_lost(tmp_path: Path) -> None:
    """What is left open is the same whether boxes are cut apart first or not."""
    file = tmp_path / "mine.yaml"
    file.write_text(many(240), encoding="utf-8")
    regions = Regions(load_policy(file, environ={}).stack)
    (pack,) = [pack for pack in regions.stack.phases["allocate"] if pack.name == "mine"]
    (box,) = regions.spoken_for(pack)
    phase = regions.phase("allocate")
    assert len(list(phase.near(box))) > FEW
    asking = [part for part in phase.parts if part.pack is pack]
    left = Region.of(regions.space, phase.left_open(box))
    plain = Region.of(regions.space, outside([box], [asked for part in asking for asked in part.asked]))
    assert left == plain
    assert not left.is_empty
    won = [(part, share) for part, share in phase.winners(box) if part is not None]
    for part in asking:
        shares = [share for winner, share in won if winner is part]
        assert Region.of(regions.space, shares) == Region.of(regions.space, phase.decided(part, box))


def test_boxes_without_words_are_not_cut_apart() -> None:
    space = Space({"tp": Ints.between(1, None)})
    index = Index(space.box({"tp": Ints.between(number, None)}) for number in range(2, FEW + 3))
    assert list(index.apart(space.box())) == [space.box()]
