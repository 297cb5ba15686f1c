"""Decisions against contracts, pads and claims: the shipped rules, and small layers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moe_align import Facts, Policy, PolicyError, load_policy
from moe_align.claims import claim_findings
from moe_align.findings import Finding, fails, text
from moe_align.lint import lint
from moe_align.load.claims import read_claims
from moe_align.prove import choice_findings, contract_findings, prove, size_findings
from moe_align.regions import Regions
from moe_align.reviewed import UNSEEN, entries, idle, known_text, reason, reviewed, unreviewed

ROOT = Path(__file__).parents[2]


@cache
def shipped() -> Policy:
    return load_policy(environ={})


@cache
def findings() -> tuple[Finding, ...]:
    return prove(shipped().stack)


def test_the_shipped_rules_break_nothing_that_nobody_looked_at() -> None:
    new = unreviewed(findings(), reviewed(shipped().stack.layers))
    assert not fails(new), text(new)


def test_the_list_of_the_shipped_rules_holds_nothing_that_is_gone() -> None:
    found = (*findings(), *lint(shipped().stack))
    assert idle(found, entries(str(ROOT / "rules" / "reviewed.yaml"), "reviewed.yaml")) == ()


def test_the_doubled_pad_of_one_rank_is_found() -> None:
    """vLLM 0.33 doubles the pad where one rank holds the expert; AITER doubles it again by itself."""
    pads = [finding for finding in findings() if finding.rule == "vllm-aiter-launch/doubled-0.22"]
    assert {finding.code for finding in pads} == {"K804"}
    (finding,) = [one for one in pads if one.rules[0] == "aiter-contracts/ck-tile-stage1-pads"]
    decision = shipped().resolve(Facts.of({**finding.facts, "vllm": "0.33.0", "tp": 1}))
    (broken,) = [check for check in decision.contracts if check.contract.address == finding.rules[0]]
    assert broken.holds is False
    assert "live elements are masked" in broken.said


def breaks(policy: Policy, finding: Finding) -> bool:
    """Whether the resolver's decision about a finding's point is the rule's and breaks the contract."""
    decision = policy.resolve(Facts.of(dict(finding.facts)))
    addresses = [step.rule.address for step in decision.steps]
    held = {check.contract.address: check.holds for check in decision.contracts}
    by_rule = any(finding.rule in (address, address.partition("/")[0]) for address in addresses)
    return decision.status == "decided" and by_rule and held.get(finding.rules[0]) is False


def test_every_counterexample_of_the_shipped_rules_is_real() -> None:
    found = [finding for finding in findings() if finding.code != "K807"]
    assert len(found) > 50
    assert [text([one]) for one in found if not breaks(shipped(), one)] == []


def test_some_are_reached_without_asking_for_the_backend() -> None:
    chosen = [one for one in findings() if "chooses the backend itself" in one.message]
    assert chosen
    assert all("backend" not in one.facts for one in chosen)


def test_what_stops_an_engine_is_a_note_of_a_pack() -> None:
    """The kinds that are not silent are for those who ask; one contract against one pack is one finding."""
    own = tuple(pack for pack in shipped().stack.contracts if pack.name == "vllm-transport-limits")
    stack = shipped().stack._replace(contracts=own)
    assert prove(stack, ("silent",)) == tuple(choice_findings(Regions(stack)))
    found = [one for one in prove(stack, ("raises", "slow")) if one.code in ("K802", "K803")]
    assert all(one.level == "note" for one in found)
    assert len({(one.code, one.rule, one.rules[0]) for one in found}) == len(found)
    assert all(breaks(shipped(), one) for one in found)


LAYER = """language: 1
pack: mine
phase: allocate
for: {{engine: vllm, scheme: ours}}
vocabulary:
  scheme: {{ours: {{note: our own}}}}
rules:
  - id: only
    align: {{hidden: 128, intermediate: {made}}}
    why: so it is
    source: us#1
"""
CONTRACTS = """language: 1
pack: demands
for: {{scheme: ours}}
contracts:
  - id: one
    require: {{intermediate: {demand}}}
    breaks: {breaks}
    why: so it is
    source: us#2
"""


def layer(folder: Path, demand: object, made: int = 128, breaks: str = "silent") -> Policy:
    (folder / "mine.yaml").write_text(LAYER.format(made=made), encoding="utf-8")
    (folder / "demands.yaml").write_text(CONTRACTS.format(demand=demand, breaks=breaks), encoding="utf-8")
    return load_policy(folder, environ={})


def of_layer(policy: Policy) -> list[Finding]:
    own = tuple(pack for pack in policy.stack.contracts if pack.name == "demands")
    return list(contract_findings(Regions(policy.stack._replace(contracts=own))))


BROKEN = [
    (128, None),
    (64, None),
    (256, "K801"),
    ("{multiple: 128, max: 512}", "K801"),
    ("{any_of: [96, 128]}", None),
    ("{exactly: native}", "K801"),
    ("{min: 128}", None),
    ("{min: 129}", "K801"),
]


@pytest.mark.parametrize(("demand", "code"), BROKEN)
def test_a_contract_against_a_multiple(tmp_path: Path, demand: object, code: str | None) -> None:
    found = of_layer(layer(tmp_path, demand))
    assert [finding.code for finding in found] == ([code] if code else [])


@settings(deadline=None, max_examples=15)
@given(st.sampled_from([32, 48, 64, 96, 128]), st.sampled_from([32, 64, 96, 128, 192]))
def test_found_if_and_only_if_some_size_breaks_it(
    tmp_path_factory: pytest.TempPathFactory, made: int, demand: int
) -> None:
    policy = layer(tmp_path_factory.mktemp("layer"), demand, made)
    sizes = [-(-size // made) * made for size in range(1, 2 * made * demand)]
    assert bool(of_layer(policy)) == any(size % demand for size in sizes)


KINDS = [("raises", "K802", "note"), ("slow", "K803", "note")]


@pytest.mark.parametrize(("breaks", "code", "level"), KINDS)
def test_kinds_of_contracts(tmp_path: Path, breaks: str, code: str, level: str) -> None:
    policy = layer(tmp_path, 256, breaks=breaks)
    (finding,) = of_layer(policy)
    assert (finding.code, finding.level) == (code, level)
    assert (finding.rule, finding.rules) == ("mine", ("demands/one", "mine/only"))
    # Rules of one's own are held against every kind, whatever is asked of the mirrors.
    own = tuple(pack for pack in policy.stack.contracts if pack.name == "demands")
    (again,) = contract_findings(Regions(policy.stack._replace(contracts=own)), ())
    assert again == finding


def test_no_rule_allocates_too_little_or_too_much() -> None:
    assert list(size_findings(Regions(shipped().stack))) == []


CLAIMS = [
    ("always: {intermediate: {multiple_of: 64}}", False),
    ("always: {status: decided, intermediate: {multiple_of: 128}}", False),
    ("always: {intermediate: {multiple_of: 256}}", True),
    ("always: {status: decided}", False),
    ("always: {status: [rejected, unknown]}", True),
    ("never: {intermediate: {min: 4096}}", True),
    ("never: {intermediate: [64, 192]}", False),
    ("never: {status: decided}", True),
]


@pytest.mark.parametrize(("claim", "broken"), CLAIMS)
def test_claims(tmp_path: Path, claim: str, broken: bool) -> None:
    policy = layer(tmp_path, 128)
    file = tmp_path / "claims.txt"
    when = (
        "{engine: vllm, scheme: ours, all2all: none, model_type: other, platform: cpu, vllm: '>=0.27,<0.34'}"
    )
    file.write_text(f"- id: mine\n  when: {when}\n  {claim}\n  why: so it is\n", encoding="utf-8")
    found = list(claim_findings(policy.stack, read_claims(file, policy.stack.vocabulary)))
    assert [finding.code for finding in found] == (["K810"] if broken else [])


FAULTS = [
    ("{}", "K891"),
    ("- id: a", "K891"),
    ("- {id: a, never: {size: 3}}", "K891"),
    ("- {id: a, when: {backend: nobody}, never: {status: decided}}", "R203"),
    ("- {id: a, when: {tp: {mim: 3}}, never: {status: decided}}", "S101"),
    ("- {id: a, never: {status: refused}}", "K891"),
    ("- {id: a, never: {status: [decided, 3]}}", "K891"),
]


@pytest.mark.parametrize(("said", "code"), FAULTS)
def test_broken_files_of_claims(tmp_path: Path, said: str, code: str) -> None:
    file = tmp_path / "claims.yaml"
    file.write_text(said, encoding="utf-8")
    with pytest.raises(PolicyError) as fault:
        read_claims(file, shipped().stack.vocabulary)
    assert code in [problem.code for problem in fault.value.problems]


WHOLE = """language: 1
pack: mine
phase: {phase}
for: {{engine: vllm, scheme: ours}}
{vocabulary}rules:
{rules}"""
WORDS = """vocabulary:
  scheme: {ours: {note: our own}}
  backend: {fast: {implies: {platform: cuda}}, slow: {}}
"""
DEMAND = """language: 1
pack: demands
for: {{scheme: ours}}
contracts:
  - id: one
    when: {when}
    require: {{intermediate: {demand}}}
    breaks: silent
    why: so it is
    source: us#2
"""


def own(folder: Path, allocate: str, when: str = "{}", demand: int = 128, select: str = "") -> Policy:
    """A layer that is a whole policy: rules that allocate, one contract, and rules that select."""
    files = {"mine": WHOLE.format(phase="allocate", vocabulary=WORDS, rules=allocate)}
    files["demands"] = DEMAND.format(when=when, demand=demand)
    if select:
        files["select"] = WHOLE.format(phase="select", vocabulary="", rules=select).replace("mine", "choice")
    for name, said in files.items():
        (folder / f"{name}.yaml").write_text(said, encoding="utf-8")
    (folder / "words.yaml").write_text(VOCABULARY, encoding="utf-8")
    return load_policy(folder, environ={}, built_in=False)


VOCABULARY = """language: 1
pack: words
vocabulary:
  engine: {vllm: {}}
  platform: {cuda: {}, rocm: {}}
  requested: {auto: {}, fast: {}}
defaults: {engine: vllm, vllm: "0.33.0", tp: 1, dp: 1, pcp: 1, sp: 1, ep: 1, requested: auto}
"""
SOURCED = "why: so, source: us#1, evidence: read}\n"


def rule(said: str) -> str:
    return f"  - {{{said}, {SOURCED}"


@pytest.mark.parametrize(
    ("align", "found"), [("{max: [128, block_k]}", False), ("{max: [32, block_k]}", True)]
)
def test_blocks_other_than_128_are_tried(tmp_path: Path, align: str, found: bool) -> None:
    policy = own(tmp_path, rule(f"id: a, align: {{intermediate: {align}}}"))
    (finding, *_) = [*contract_findings(Regions(policy.stack)), None]
    assert bool(finding) == found
    assert finding is None or breaks(policy, finding)


def test_blocks_that_a_rule_names_are_tried(tmp_path: Path) -> None:
    said = "id: a, when: {block_k: [128, 96]}, align: {intermediate: block_k}"
    policy = own(tmp_path, rule(said) + rule("id: b, align: 128"))
    (finding,) = contract_findings(Regions(policy.stack))
    assert finding.facts["block_k"] == 96
    assert breaks(policy, finding)


TIED = [
    ("moe_tp: {min: 4}, intermediate: {max: 1000}", True),
    ("moe_tp: {min: 4}, moe_ep: {min: 2}", False),
    ("tp: {min: 16}, moe_tp: {max: 2}", True),
    ("tp: 24", True),
    ("intermediate: {multiple_of: 1024}, moe_tp: 8", False),
    ("intermediate: 1032, moe_tp: 8", True),
]


@pytest.mark.parametrize(("when", "found"), TIED)
def test_what_the_engine_derives_is_tied_together(tmp_path: Path, when: str, found: bool) -> None:
    """A point that no launch has breaks nothing; one that is shown can be launched."""
    said = f"id: a, when: {{{when}}}, align: native"
    policy = own(tmp_path, rule(said) + rule("id: b, align: 128"))
    shown = list(contract_findings(Regions(policy.stack)))
    assert len(shown) == found
    assert all(breaks(policy, finding) for finding in shown)
    assert all({"moe_tp", "moe_ep"}.isdisjoint(finding.facts) for finding in shown)


def test_an_engine_of_which_no_launch_is_known_is_given_what_it_derives(tmp_path: Path) -> None:
    policy = own(tmp_path, rule("id: a, when: {moe_tp: {min: 4}}, align: native") + rule("id: b, align: 128"))
    said = (tmp_path / "mine.yaml").read_text(encoding="utf-8").replace("engine: vllm", "engine: other")
    (tmp_path / "mine.yaml").write_text(
        said.replace("vocabulary:\n", "vocabulary:\n  engine: {other: {}}\n"), encoding="utf-8"
    )
    policy = load_policy(tmp_path, environ={}, built_in=False)
    (finding,) = contract_findings(Regions(policy.stack))
    assert int(finding.facts["moe_tp"]) >= 4
    assert breaks(policy, finding)


def test_what_the_engine_chooses_is_walked(tmp_path: Path) -> None:
    select = rule("id: a, when: {platform: cuda}, use: fast") + rule("id: b, use: slow")
    policy = own(tmp_path, rule("id: x, align: native"), "{backend: fast}", select=select)
    (finding,) = contract_findings(Regions(policy.stack))
    assert "backend" not in finding.facts
    assert finding.facts["platform"] == "cuda"
    assert breaks(policy, finding)
    assert list(choice_findings(Regions(policy.stack))) == []


def test_what_nobody_chooses_is_asked_for(tmp_path: Path) -> None:
    policy = own(tmp_path, rule("id: x, align: native"), "{backend: fast}", select=rule("id: b, use: slow"))
    (finding,) = contract_findings(Regions(policy.stack))
    assert finding.facts["backend"] == "fast"
    assert "itself" not in finding.message


CHOICES = [("{}", ["K807"]), ("{requested: fast}", []), ("{platform: cuda}", [])]


@pytest.mark.parametrize(("when", "codes"), CHOICES)
def test_a_backend_that_cannot_be_there(tmp_path: Path, when: str, codes: list[str]) -> None:
    select = rule(f"id: a, when: {when}, use: fast") + rule("id: b, use: slow")
    policy = own(tmp_path, rule("id: x, align: native"), select=select)
    assert [finding.code for finding in choice_findings(Regions(policy.stack))] == codes


SELECTED = [
    ("{}", "never: {status: rejected}", True),
    ("{backend: slow}", "never: {status: rejected}", False),
    ("{platform: rocm}", "never: {status: rejected}", False),
    ("{}", "always: {status: [decided, rejected]}", False),
    ("{}", "always: {status: decided, intermediate: {multiple_of: 64}}", True),
    ("{platform: rocm}", "always: {status: decided, intermediate: {multiple_of: 64}}", False),
    ("{}", "never: {status: decided, intermediate: {max: 63}}", False),
    ("{}", "never: {hidden: 7, intermediate: 64}", True),
    ("{}", "never: {status: unknown}", False),
]


@pytest.mark.parametrize(("when", "claim", "broken"), SELECTED)
def test_claims_are_about_what_is_chosen_too(tmp_path: Path, when: str, claim: str, broken: bool) -> None:
    select = rule("id: a, when: {platform: cuda}, reject: not here") + rule("id: b, use: slow")
    policy = own(tmp_path, rule("id: x, align: {intermediate: 64}"), select=select)
    file = tmp_path / "claims.txt"
    when = when.replace("{", "{scheme: ours, engine: vllm, ").replace(", }", "}")
    file.write_text(f"- id: mine\n  when: {when}\n  {claim}\n", encoding="utf-8")
    found = list(claim_findings(policy.stack, read_claims(file, policy.stack.vocabulary)))
    assert [finding.code for finding in found] == (["K810"] if broken else [])
    for finding in found:
        assert policy.resolve(Facts.of(dict(finding.facts))).status in ("decided", "rejected")


def test_what_needs_too_much_room_is_not_proven(tmp_path: Path) -> None:
    said = "id: a, when: {intermediate_per_partition: {multiple_of: 1021}}, align: 1019"
    policy = own(tmp_path, rule(said) + rule("id: b, align: 128"), demand=1013)
    found = [finding for finding in prove(policy.stack) if finding.code == "K808"]
    assert ("mine/a", "warning") in [(finding.rule, finding.level) for finding in found]
    file = tmp_path / "claims.txt"
    claim = "{intermediate: {multiple_of: 1013}}"
    file.write_text(f"- {{id: mine, when: {{scheme: ours}}, always: {claim}}}", encoding="utf-8")
    (finding,) = claim_findings(policy.stack, read_claims(file, policy.stack.vocabulary))
    assert (finding.code, finding.rules) == ("K808", ("mine",))


def known(folder: Path, said: str) -> Policy:
    (folder / "reviewed.yaml").write_text(said, encoding="utf-8")
    return layer(folder, 256)


LISTS = [
    ("- {code: K801, rules: [mine/only], claims: [demands/one], why: seen}", "seen"),
    ("- {code: K801, packs: [mine], claims: [demands/one, demands/two], why: seen}", "seen"),
    ("- {code: K801, packs: [mine], claims: [demands/one], why: a}\n"
     "- {code: K801, rules: [mine/only], claims: [demands/one], why: b}", "b"),
    ("- {code: K802, rules: [mine/only], claims: [demands/one], why: seen}", None),
    ("- {code: K801, rules: [mine/only], why: seen}", None),
    ("- {code: K801, rules: [mine/only], claims: [demands/two], why: seen}", None),
]  # fmt: skip


@pytest.mark.parametrize(("said", "why"), LISTS)
def test_a_list_of_known_findings(tmp_path: Path, said: str, why: str | None) -> None:
    policy = known(tmp_path, said)
    (finding,) = of_layer(policy)
    listed = reviewed(policy.stack.layers)
    assert reason(finding, listed) == why
    assert unreviewed([finding], listed) == (() if why else (finding,))


def test_how_many_are_known_is_said(tmp_path: Path) -> None:
    entry = "- {code: K801, rules: [mine/only], claims: [demands/one], why: %s}"
    (finding,) = of_layer(known(tmp_path, entry % "seen"))
    listed = reviewed(load_policy(tmp_path, environ={}).stack.layers)
    assert known_text([finding], listed) == "1 known, all looked at (`--all` shows them)"
    unseen = dict.fromkeys(listed, UNSEEN)
    assert known_text([finding], unseen).startswith("1 known, 1 of them not looked at yet")
    assert known_text([], listed) == ""
    assert known_text([finding], {}) == ""


def test_what_a_list_needs_no_more(tmp_path: Path) -> None:
    claims = "claims: [demands/one, demands/two]"
    said = f"- {{code: K801, rules: [mine/only, mine/gone], packs: [o], {claims}, why: a}}"
    (finding,) = of_layer(known(tmp_path, said))
    listed = entries(str(tmp_path / "reviewed.yaml"), "reviewed.yaml")
    assert idle([finding], listed) == ("K801 mine/gone", "K801 o", "K801 demands/two")


BAD_LISTS = [
    "{}",
    "- {code: K801, why: seen}",
    "- {code: K801, rules: [], why: seen}",
    "- {code: K801, rules: [a], why: 3}",
    "- {code: K801, rules: a, why: seen}",
    "- {code: K801, rules: [a], claims: b, why: seen}",
    "- {code: K801, rules: [a], claim: b, why: seen}",
    "- a",
]


@pytest.mark.parametrize("said", BAD_LISTS)
def test_broken_lists(tmp_path: Path, said: str) -> None:
    policy = known(tmp_path, said)
    with pytest.raises(PolicyError) as fault:
        reviewed(policy.stack.layers)
    (problem,) = fault.value.problems
    assert problem.code == "K890"
    assert problem.location is not None


CONDITIONS = [
    "",
    "when: {platform: cuda}, ",
    "when: {intermediate_per_partition: {multiple_of: 6}}, ",
    "when: {intermediate_per_partition: {min: 10, max: 20}}, ",
    "when: {moe_tp: {min: 2}}, ",
    "when: {platform: rocm, intermediate: {max: 30}}, ",
]
MADE = [
    "align: {intermediate: 4}",
    "align: {intermediate: 6}",
    "align: {intermediate: {multiple: 8, at_least: 24}}",
]
FURTHER = [
    "",
    "align: {intermediate: 12}",
    "require: {intermediate: 4}",
    "align: {intermediate: {snap: [8, 18]}}",
]

EARLIER = ["", "align: {intermediate: 10}", "when: {platform: cuda}, align: {intermediate: 6}"]

pairs = st.tuples(st.sampled_from(CONDITIONS), st.sampled_from(MADE))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(pairs, max_size=2),
    st.sampled_from(EARLIER),
    st.sampled_from(FURTHER),
    st.sampled_from([2, 3, 4, 8, 12]),
)
def test_found_if_and_only_if_some_point_breaks_it(
    tmp_path_factory: pytest.TempPathFactory,
    said: list[tuple[str, str]],
    earlier: str,
    further: str,
    demand: int,
) -> None:
    """Several rules and phases, sizes cut by launches: what is found is what every point together shows."""
    folder = tmp_path_factory.mktemp("layer")
    for phase, one in (("dispatch", earlier), ("repack", further)):
        if one:
            pack = WHOLE.format(phase=phase, vocabulary="", rules=rule(f"id: a, {one}"))
            (folder / f"{phase}.yaml").write_text(pack.replace("mine", phase), encoding="utf-8")
    allocate = "".join(rule(f"id: r{at}, {when}{made}") for at, (when, made) in enumerate(said))
    policy = own(folder, allocate + rule("id: last, align: native"), demand=demand)
    found = list(contract_findings(Regions(policy.stack)))
    assert all(breaks(policy, finding) for finding in found)
    assert {finding.rule for finding in found} == {
        address
        for platform in ("cuda", "rocm")
        for tp in (1, 2, 8)
        for size in range(1, 64)
        if (address := broken_by(policy, platform=platform, tp=tp, intermediate=size * tp))
    }


def broken_by(policy: Policy, **facts: str | int) -> str | None:
    """The rule to which a decision at a point owes a size that breaks the one contract, if it does."""
    decision = policy.resolve(Facts.of({"scheme": "ours", "hidden": 8, **facts}))
    if decision.status != "decided" or all(check.holds for check in decision.contracts):
        return None
    changed = [
        step.rule for step in decision.steps if step.phase == "allocate" or "align" in step.rule.outcome.form
    ]
    return changed[-1].address
