"""All ways to spread a model over some GPUs: TP × EP × DP × backend, by bytes per rank."""

from __future__ import annotations

from ..errors import PolicyError, Problem
from ..facts import Facts
from ..models import Model
from ..parallel import atom_parallel, sglang_parallel, vllm_parallel
from ..record import NamedTuple
from .dims import dims
from .outcome import LOADS, Outcome, outcome, tried
from .question import explained, find, of_sizes, overruled, with_model

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Unpack

    from ..facts import Given
    from ..policy import Policy

    Watch = Callable[[int, int], None]

#: So many GPUs at most: a plan is one pipeline stage of one replica.
MOST_GPUS = 4096

#: The facts that a plan chooses by itself.
_CHOSEN = ("tp", "dp", "pcp", "ep", "moe_tp", "moe_ep", "requested", "backend")


class Layout(NamedTuple):
    """One way that loads: `splits` are the TP × DP that give it, `asked` what is asked for to have it.

    `default` is what a start without any further flag gives.
    """

    moe_tp: int
    moe_ep: int
    splits: tuple[tuple[int, int], ...]
    asked: tuple[str, ...]
    default: bool
    outcome: Outcome
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> int | None:
        """Bytes per rank."""
        return self.outcome.resident_bytes


class Refused(NamedTuple):
    """A layout that does not load, and why; `fused` is with shared experts among the routed ones.

    `open` ones may load: it depends on what was not said.
    """

    moe_tp: int
    moe_ep: int
    splits: tuple[tuple[int, int], ...]
    asked: tuple[str, ...]
    reason: str
    fused: bool = False
    open: bool = False


class Plan(NamedTuple):
    """All layouts of one model over `gpus`, fewest bytes first; `memory` is that of one GPU in bytes.

    `facts` are those that all layouts share.
    """

    model: Model
    gpus: int
    engine: str
    release: str
    facts: Facts
    layouts: tuple[Layout, ...]
    refused: tuple[Refused, ...]
    memory: int | None = None
    kv_bytes: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def default(self) -> Layout | None:
        """What a default start of tensor parallelism alone gives."""
        return next((one for one in self.layouts if one.default and one.moe_ep == 1), None)

    @property
    def saving(self) -> tuple[Layout, Layout, int] | None:
        """The default start, the layout of the same split that takes fewest bytes, and what it saves."""
        default = self.default
        if default is None or default.fits is None:
            return None
        same = (one for one in self.layouts if one.moe_tp == default.moe_tp and one.fits is not None)
        best = min(same, key=lambda one: one.fits or 0)
        saved = default.fits - (best.fits or 0)
        return (default, best, saved) if saved > 0 else None


def plan(
    model: Model | str | None = None,
    *,
    gpus: int,
    policy: Policy | None = None,
    memory: int | None = None,
    kv_bytes: int | None = None,
    watch: Watch | None = None,
    **given: Unpack[Given],
) -> Plan:
    """All layouts of `model` over `gpus` GPUs that the engine allows, by bytes per rank.

    `memory` is that of one GPU in bytes; `kv_bytes` what one token takes in the KV cache. `watch`
    is told how many steps are done, and of how many.

    Raises:
        PolicyError: no such model, unknown names, contradictions, no whole number of GPUs.
    """
    if policy is None:
        from ..cache import cached_policy

        policy = cached_policy()
    facts = Facts.of(given)
    if model is None:
        model = of_sizes(facts)
    elif isinstance(model, str):
        model = find(model)
    vocabulary = policy.stack.vocabulary
    notes = (*overruled(vocabulary, model, facts), *model.notes)
    try:
        made = planned(policy, model, with_model(vocabulary, facts, model), gpus, watch)
    except PolicyError as fault:
        raise explained(fault, model) from None
    known = kv_bytes or model.kv_bytes_per_token
    return made._replace(memory=memory, kv_bytes=known, notes=notes)


def planned(policy: Policy, model: Model, facts: Facts, gpus: int, watch: Watch | None = None) -> Plan:
    """The same where `facts` hold what the model says.

    Raises:
        PolicyError: as `plan`.
    """
    if not 1 <= gpus <= MOST_GPUS:
        raise PolicyError([Problem("U020", f"{gpus} GPUs", f"give a number from 1 to {MOST_GPUS}")])
    chosen = [key for key in _CHOSEN if key in facts and key not in ("requested", "backend")]
    if chosen:
        fix = f"leave out {', '.join(f'`--{key}`' for key in chosen)}, or use `check`"
        raise PolicyError([Problem("U021", "a plan chooses the parallel sizes itself", fix)])
    first = outcome(policy, facts, model)
    facts = Facts.of({**dict(facts.items()), **(first.machine or {})})
    engine = str(first.values["engine"])
    found, refused = _tried(policy, model, facts, _splits(engine, gpus), watch)
    refused += _fused(policy, model, facts, _splits(engine, gpus))
    layouts = sorted(_merged(found), key=lambda one: (one.fits is None, one.fits or 0, not one.default))
    release = str(facts.get(engine) or policy.stack.vocabulary.defaults.get(engine, ""))
    return Plan(model, gpus, engine, release, facts, tuple(layouts), tuple(_merged_refusals(refused)))


def _splits(engine: str, gpus: int) -> list[tuple[int, int, int]]:
    """All TP × DP × EP of an engine that take so many GPUs."""
    if engine == "sglang":
        return [(gpus, 1, ep) for ep in range(1, gpus + 1) if gpus % ep == 0]
    pairs = [(tp, gpus // tp) for tp in range(gpus, 0, -1) if gpus % tp == 0]
    spreads = (1, gpus) if gpus > 1 else (1,)
    return [(tp, dp, ep) for ep in spreads for tp, dp in pairs]


def _tried(
    policy: Policy,
    model: Model,
    facts: Facts,
    splits: list[tuple[int, int, int]],
    watch: Watch | None,
) -> tuple[list[Layout], list[Refused]]:
    found: list[Layout] = []
    refused: list[Refused] = []
    requests = _requests(policy, facts)
    for index, (tp, dp, ep) in enumerate(splits):
        for key, request in requests:
            one = _one(policy, model, facts, (tp, dp, ep), (key, request))
            if isinstance(one, Layout):
                found.append(one)
            elif isinstance(one, Refused):
                refused.append(one)
        settled = {(one.moe_tp, one.moe_ep) for one in found if (tp, dp) in one.splits}
        # Where the backend is open, the layouts of each backend are the answer.
        refused = [one for one in refused if not one.open or (one.moe_tp, one.moe_ep) not in settled]
        if watch is not None:
            watch(index + 1, len(splits))
    return found, refused


def _requests(policy: Policy, facts: Facts) -> list[tuple[str, str]]:
    """What may be asked for, by the fact that says it: what was said, else all that the engine takes."""
    nothing = [("requested", "auto")]
    if "backend" in facts or "requested" in facts:
        return [("", "")]
    if facts.get("engine") in (None, "vllm"):
        others = policy.stack.vocabulary.domain("requested") - {"auto"}
        return [*nothing, *(("requested", name) for name in sorted(others))]
    return [*nothing, *(("backend", name) for name in sorted(_backends(policy, facts)))]


def _backends(policy: Policy, facts: Facts) -> set[str]:
    """The backends at which the packs of an engine look for a scheme."""
    found: set[str] = set()
    for pack in (*policy.stack.phases["allocate"], *policy.stack.phases["repack"]):
        needs = {need.key: need.accepts for need in pack.needs}
        if any(key in needs and facts.get(key) not in needs[key] for key in ("engine", "scheme")):
            continue
        for rule in pack.rules:
            of = [condition.accepts for condition in rule.when if condition.key == "backend"]
            found.update(*(accepts for accepts in of if isinstance(accepts, frozenset)))
    return found if len(found) < len(policy.stack.vocabulary.domain("backend")) // 2 else set()


def _one(
    policy: Policy, model: Model, facts: Facts, split: tuple[int, int, int], request: tuple[str, str]
) -> Layout | Refused | None:
    """What one split with one request gives; `None` where the request is none for this machine."""
    tp, dp, ep = split
    key, name = request
    more: dict[str, object] = {"tp": tp, "dp": dp, "ep": ep}
    if key:
        more[key] = name
    engine = str(facts.get("engine") or "vllm")
    moe_tp, moe_ep = _moe(engine, split)
    asked = (name,) if name not in ("", "auto") else ()
    try:
        one = outcome(policy, Facts.of({**dict(facts.items()), **more}), model)
    except PolicyError as fault:
        if asked:
            return None
        return Refused(moe_tp, moe_ep, ((tp, dp),), asked, fault.problems[0].message)
    if asked and one.decision.backend is None:
        return None
    bad = next((dim for dim in dims(policy, model, one) if dim.verdict not in LOADS), None)
    if bad is None and one.loads:
        return Layout(moe_tp, moe_ep, ((tp, dp),), asked, not asked, one, tuple(_notes(one)))
    reason = f"{bad.name}: {bad.reason}" if bad and bad.reason else one.reason or one.verdict
    if asked and one.verdict == "unknown":
        return None
    undecided = one.decision.status == "undecided"
    return Refused(moe_tp, moe_ep, ((tp, dp),), asked, reason, open=undecided)


def _fused(policy: Policy, model: Model, facts: Facts, splits: list[tuple[int, int, int]]) -> list[Refused]:
    """The splits that fused shared experts rule out, where the model has such experts."""
    if not model.num_shared_experts or "fused_shared_experts" in facts:
        return []
    engine, found = str(facts.get("engine") or "vllm"), []
    for tp, dp, ep in splits:
        alone = Facts.of({**dict(facts.items()), "tp": tp, "dp": dp, "ep": ep})
        fused = alone.having(fused_shared_experts=model.num_shared_experts)
        with_them, without = tried(policy, fused, model), tried(policy, alone, model)
        if with_them is None or without is None or without.verdict == "reject":
            continue
        if with_them.decision.status == "rejected":
            reason = with_them.reason or "refused"
            found.append(Refused(*_moe(engine, (tp, dp, ep)), ((tp, dp),), (), reason, fused=True))
    return found


def _moe(engine: str, split: tuple[int, int, int]) -> tuple[int, int]:
    tp, dp, ep = split
    if engine == "sglang":
        cut = sglang_parallel(tp=tp, ep=ep)
    elif engine == "atom":
        cut = atom_parallel(tp=tp, dp=dp, ep=ep > 1)
    else:
        cut = vllm_parallel(tp=tp, dp=dp, ep=ep > 1)
    return cut.moe_tp, cut.moe_ep


def _notes(one: Outcome) -> Iterator[str]:
    """Preferences of kernels that the sizes do not meet."""
    for check in one.decision.contracts:
        if check.holds is False and check.contract.breaks == "slow":
            yield f"slower: {check.contract.why}"


def _merged(found: list[Layout]) -> Iterator[Layout]:
    """Layouts with one split of experts, one backend and the same sizes, as one."""
    groups: dict[object, list[Layout]] = {}
    for one in found:
        decision = one.outcome.decision
        sizes = decision.hidden.allocated, decision.intermediate.allocated, decision.blocks
        key = one.moe_tp, one.moe_ep, decision.backend, sizes, one.outcome.verdict, one.fits
        groups.setdefault(key, []).append(one)
    for alike in groups.values():
        default = any(one.default for one in alike)
        splits = dict.fromkeys(split for one in alike for split in one.splits)
        asked = dict.fromkeys(name for one in alike for name in one.asked)
        yield alike[0]._replace(splits=tuple(splits), asked=() if default else tuple(asked), default=default)


def _merged_refusals(refused: list[Refused]) -> Iterator[Refused]:
    groups: dict[object, list[Refused]] = {}
    for one in refused:
        groups.setdefault((one.moe_tp, one.moe_ep, one.reason, one.fused), []).append(one)
    for alike in groups.values():
        splits = dict.fromkeys(split for one in alike for split in one.splits)
        asked = dict.fromkeys(name for one in alike for name in one.asked)
        by_default = any(not one.asked for one in alike)
        yield alike[0]._replace(splits=tuple(splits), asked=() if by_default else tuple(asked))


def curve(policy: Policy, made: Plan) -> tuple[tuple[int, Outcome | None], ...]:
    """What a rank holds over tensor-parallel sizes up to the plan's GPUs; `None` where it does not load."""
    found: list[tuple[int, Outcome | None]] = []
    tp = 1
    while tp <= made.gpus:
        one = tried(policy, Facts.of({**dict(made.facts.items()), "tp": tp}), made.model)
        found.append((tp, one if one is not None and one.loads else None))
        tp *= 2
    return tuple(found)
