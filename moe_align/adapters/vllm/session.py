"""One process of an engine: what was read, decided and applied, from the plugin's start to a built model."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from . import LOGGER, guards
from .pads import Sizes, fill_layer
from .reading import Given, Process, read_layer, read_process, spoken
from .records import Heading, Pair, Record, table

if TYPE_CHECKING:
    from ...decision import Decision
    from ...policy import Policy

log = logging.getLogger(LOGGER)

#: Where the digest travels in `VllmConfig.additional_config`, which is part of the compile cache's key.
CONFIG_KEY = "moe_align"

OBSERVE, APPLY = "observe", "apply"

#: Contracts whose breaking is worth a warning; what is only slow is worth a remark.
WRONG = ("silent", "raises")

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class StartRefused(RuntimeError):
    """The engine must not start like this; the message says why and what to do."""


def _careful(
    step: Callable[Concatenate[Session, Arguments], Answer],
) -> Callable[Concatenate[Session, Arguments], Answer | None]:
    """The step, which in observe mode never fails: its first fault is logged and ends the observation."""

    def careful(self: Session, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer | None:
        if self.mode == APPLY:
            return step(self, *args, **kwargs)
        if self.has_given_up:
            return None
        try:
            return step(self, *args, **kwargs)
        except StartRefused:
            # Other ranks act on a policy that this one does not have.
            raise
        except Exception as fault:
            self.has_given_up = True
            log.warning("moe-align observes nothing more: %s", fault, exc_info=fault)
            return None

    return careful


class Answered(NamedTuple):
    """What the mirror says of the facts of a layer, and the decision of a user's rule, if one decides."""

    expected: Pair | None
    mirror: str | None
    rule: str
    notes: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    decision: Any = None  # a Decision, unless no pack knows a name
    user_rule: str | None = None


class Session:
    """Watches the engine (a `seam.Watcher`). `unsafe`: contracts that break silently stop nothing."""

    def __init__(self, mode: str, *, unsafe: bool = False) -> None:
        self.mode = mode
        self.unsafe = unsafe
        self.records: WeakKeyDictionary[Any, Record] = WeakKeyDictionary()
        self._policy: Policy | None = None
        self._mirror: Policy | None = None
        self.has_given_up = False
        self._is_unreadable = False
        self._process: Process | None = None
        self._answers: dict[object, Answered] = {}

    # What the seam calls.

    def config_made(self, vllm_config: Any) -> None:
        if self.mode == APPLY:
            self._send_digest(vllm_config)

    def sizes_chosen(self, layer: Any, method: Any, entering: Pair, chosen: Pair) -> Pair:
        before = self.records.get(layer)
        if before is not None and entering == before.allocated:
            # A method that rounds once more while it creates weights: what it gets is rounded already.
            return chosen
        record = self._judged(layer, method, entering, chosen)
        if record is None:
            return chosen
        self.records[layer] = record
        return record.allocated

    def weights_created(self, layer: Any, method: Any) -> None:
        self._measured(layer)

    def weights_loaded(self, layer: Any, method: Any) -> AbstractContextManager[None]:
        record = self.records.get(layer)
        if record is not None:
            record.is_processed = True
        return self._made_neutral(layer) or contextlib.nullcontext()

    def model_built(self, model: Any) -> None:
        self._reported(model)

    def snapshot_saved(self, model: Any, path: str) -> None:
        records = self._records_of(model)
        if records:
            self._described(records, path)

    def snapshot_loading(self, model: Any, path: str) -> None:
        records = self._records_of(model)
        if records:
            self._compared(records, path)

    # In apply mode these raise, in observe mode they give None.

    @_careful
    def _judged(self, layer: Any, method: Any, entering: Pair, chosen: Pair) -> Record | None:
        process = self._begun()
        given = read_layer(layer, method, entering)
        backend = str(given.get("backend", "–")).lower() if given else "–"
        parallel = layer.moe_config.moe_parallel_config
        record = Record(layer.layer_name, backend, entering, chosen, chosen, "–")
        record.given = given
        record.is_first_rank = parallel.tp_rank == 0 and parallel.ep_rank == 0
        if given is None:
            record.rule = f"– (quant method {type(method).__name__} is not known)"
        elif self.policy is None:
            record.rule = "– (no policy)"
        else:
            self._decided(record, layer, method, process, given)
        return record

    @_careful
    def _measured(self, layer: Any) -> None:
        record = self.records.get(layer)
        if record is None:
            return
        record.created_bytes = sum(parameter.nbytes for parameter in layer.parameters(recurse=False))
        if record.applied:
            self._filled(layer, record)

    @_careful
    def _made_neutral(self, layer: Any) -> AbstractContextManager[None] | None:
        record = self.records.get(layer)
        if record is None or not record.applied or _is_in_runtime_form():
            return None
        self._filled(layer, record)
        if self._begun().platform != "rocm":
            return None
        from ..aiter import neutral_scale_shuffles

        return neutral_scale_shuffles()

    @_careful
    def _reported(self, model: Any) -> None:
        seen = {id(module): self.records[module] for module in model.modules() if module in self.records}
        records = list(seen.values())
        unseen = guards.unseen(model, self.records)
        if self.mode == APPLY:
            self._refuse_padded_gates(model)
        if (records and not records[0].is_first_rank) or (not records and not unseen):
            return
        process = self._begun()
        heading = Heading(
            mode=self.mode,
            vllm=process.vllm,
            aiter=process.aiter,
            hardware=process.arch if process.arch not in (None, "none") else process.platform,
            digest=self.policy.digest if self.policy else None,
            model=type(model).__name__,
        )
        text = table(heading, records, unseen)
        (log.warning if any(record.warnings for record in records) or unseen else log.info)("%s", text)

    @_careful
    def _described(self, records: list[Record], path: str) -> None:
        from . import snapshots

        said = snapshots.saved(path, records, self.policy, self._begun().vllm)
        if said:
            log.warning("moe-align: %s", said)

    @_careful
    def _compared(self, records: list[Record], path: str) -> None:
        from . import snapshots

        against, unknown = snapshots.wrongs(path, records, self.policy, self._begun().vllm)
        for said in unknown:
            log.warning("moe-align: snapshot %s: %s", path, said)
        if not against:
            return
        said = "; ".join(against)
        if self.unsafe:
            log.warning("moe-align: snapshot %s is loaded all the same: %s", path, said)
            return
        raise StartRefused(
            f"moe-align: snapshot {path} does not fit: {said}\n"
            "  fix: save it anew, or rewrite it with `moe-align snapshot repad`; MOE_ALIGN_UNSAFE=1 loads it"
        )

    # Parts of them.

    def _records_of(self, model: Any) -> list[Record]:
        return [self.records[module] for module in model.modules() if module in self.records]

    @property
    def policy(self) -> Policy | None:
        """The policy of this process's own files; None after a fault in them (in observe mode)."""
        if self._policy is None and not self._is_unreadable:
            self._load()
        return self._policy

    @property
    def mirror(self) -> Policy:
        """The built-in packs alone: what this engine does by itself, as far as they know."""
        assert self._mirror is not None, "loaded together with the policy"
        return self._mirror

    def _load(self) -> None:
        from ... import PolicyError, load_policy

        try:
            self._policy = load_policy()
        except PolicyError as fault:
            if self.mode == APPLY:
                raise StartRefused(f"moe-align cannot read its rules:\n{fault}") from fault
            self._is_unreadable = True
            log.warning("moe-align cannot read its rules and says nothing of sizes:\n%s", fault)
            return
        self._mirror = guards.built_in(self._policy)

    def _begun(self) -> Process:
        """The facts of this process; the first call also compares the policy with the front end's."""
        if self._process is None:
            from vllm.config import get_current_vllm_config

            vllm_config = get_current_vllm_config()
            self._process = read_process(vllm_config, _aiter_version())
            self._compare_digest(vllm_config)
        return self._process

    def _decided(self, record: Record, layer: Any, method: Any, process: Process, given: Given) -> None:
        # Most layers of a model are alike: the words of the policy are looked up once for all of them.
        key = tuple(given.items())
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._answer(process, given)
        record.expected, record.mirror, record.rule, record.notes, record.remarks = answer[:5]
        if answer.user_rule is not None:
            self._user_ruled(record, layer, method, process, answer.decision, answer.user_rule)

    def _answer(self, process: Process, given: Given) -> Answered:
        from ... import Facts, PolicyError

        policy = self.policy
        assert policy is not None, "no layer is judged without one"
        try:
            facts = Facts.of(spoken(policy.stack.vocabulary, process.facts() | given))
            decision, mirrored = policy.resolve(facts), self.mirror.resolve(facts)
        except PolicyError as fault:
            # A name that no pack has: nothing is guessed, and nothing is changed.
            return Answered(None, None, f"– ({'; '.join(problem.message for problem in fault.problems)})", ())
        return Answered(
            guards.allocated(mirrored),
            mirrored.rule,
            _rule_text(mirrored),
            guards.broken(mirrored, *WRONG),
            guards.broken(mirrored, "slow"),
            decision,
            guards.user_rule(policy, decision),
        )

    def _user_ruled(
        self, record: Record, layer: Any, method: Any, process: Process, decision: Decision, rule: str
    ) -> None:
        reason = guards.refusal(layer, method, process.model_type, given_sizes=record.entering)
        wanted = guards.allocated(decision)
        if self.mode == OBSERVE:
            would = f"would allocate {wanted[0]} × {wanted[1]}" if wanted else f"is {decision.status}"
            record.remarks += (f"{rule} {f'would not be applied: {reason}' if reason else would}",)
            return
        if reason:
            record.notes += (f"{rule} is not applied: {reason}",)
            return
        problem = guards.fault(decision, record.entering, process, layer, method)
        if problem:
            raise StartRefused(f"moe-align: layer {record.layer}: {rule}: {problem}")
        unsafe = guards.broken(decision, "silent")
        if unsafe and not self.unsafe:
            raise StartRefused(
                f"moe-align: layer {record.layer}: {rule} breaks what a kernel demands: {'; '.join(unsafe)}\n"
                "  fix: change the rule, or set MOE_ALIGN_UNSAFE=1 if you know that the kernel is not reached"
            )
        assert wanted is not None, "a decision without a fault has sizes"
        record.allocated, record.rule, record.applied = wanted, rule, True
        record.notes, record.remarks = guards.broken(decision, *WRONG), guards.broken(decision, "slow")

    def _filled(self, layer: Any, record: Record) -> None:
        fill_layer(layer, Sizes(record.entering, record.allocated, layer.moe_config.is_act_and_mul))

    def _refuse_padded_gates(self, model: Any) -> None:
        name = guards.gate_that_sees_pads(model, self.records)
        if name:
            raise StartRefused(
                f"moe-align: {name} would run its router on padded activations: vLLM pads the hidden size\n"
                "  before a gate that the expert layer holds itself\n"
                "  fix: pad the intermediate size only"
            )

    def _send_digest(self, vllm_config: Any) -> None:
        policy = self.policy
        assert policy is not None, "apply mode has a policy or has refused the start"
        carried: object = vllm_config.additional_config
        if not isinstance(carried, dict):
            raise StartRefused(
                "moe-align: `additional_config` is no mapping, so it cannot carry the policy's digest\n"
                "  fix: pass a mapping, or set MOE_ALIGN_MODE=observe"
            )
        pinned = carried.get(CONFIG_KEY, {}).get("digest")
        if pinned is not None and pinned != policy.digest:
            raise StartRefused(_digests_differ("the front end", policy.digest, pinned))
        # A new mapping: the old one may be shared with the arguments of another engine.
        vllm_config.additional_config = {**carried, CONFIG_KEY: {"mode": self.mode, "digest": policy.digest}}

    def _compare_digest(self, vllm_config: Any) -> None:
        carried = vllm_config.additional_config
        sent: str | None = carried.get(CONFIG_KEY, {}).get("digest") if isinstance(carried, dict) else None
        if sent is None and self.mode == OBSERVE:
            return
        here = f"rank {_rank()}"
        if sent is not None and self.mode == OBSERVE:
            raise StartRefused(
                f"moe-align: {here} runs in observe mode, where the front end applies policy {sent[:12]}\n"
                "  fix: set MOE_ALIGN_MODE=apply and the same MOE_ALIGN_RULES on every node"
            )
        policy = self.policy
        assert policy is not None, "apply mode has a policy or has refused the start"
        if sent is None:
            raise StartRefused(
                f"moe-align: {here} runs in apply mode, the engine's configuration carries no policy digest\n"
                "  fix: set MOE_ALIGN_MODE=apply where the engine is started, and start it by EngineArgs"
            )
        if sent != policy.digest:
            raise StartRefused(_digests_differ(here, policy.digest, sent))


def _rule_text(decision: Decision) -> str:
    if decision.rule:
        return decision.rule if decision.status == "decided" else f"{decision.rule} ({decision.status})"
    return f"– ({decision.reason or decision.status})"


def _digests_differ(who: str, here: str, there: str) -> str:
    return (
        f"moe-align: {who} has policy {here[:12]}, the engine's configuration says {there[:12]}\n"
        "  fix: the same MOE_ALIGN_RULES, files and moe-align version on every node"
    )


def _aiter_version() -> str | None:
    from ..aiter import WrongPackageError, installed

    try:
        found = installed()
    except WrongPackageError as fault:
        log.warning("%s", fault)
        return None
    return found.version if found else None


def _rank() -> str:
    from vllm.distributed import parallel_state

    return str(parallel_state.get_world_group().rank)


def _is_in_runtime_form() -> bool:
    """Whether the weights came repacked already, so that their pads are not where the loader's are."""
    from vllm.model_executor.model_loader import utils

    ask: Callable[[], bool] = getattr(utils, "is_weights_pre_processed", bool)
    return ask()
