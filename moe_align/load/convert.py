"""One checked document → a pack: names are looked up, forms are held against the phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from .. import facts, packs, schema
from ..errors import did_you_mean
from .conditions import Context, Path, conditions, covers

#: The phases in which each form of outcome means something.
_FORMS = {
    "align": ("model", "select", "dispatch", "allocate", "repack"),
    "add": ("model", "dispatch", "allocate", "repack"),
    "require": ("model", "select", "dispatch", "allocate", "repack"),
    "refine": ("model", "select", "allocate", "repack"),
    "use": ("select",),
    "set": ("model",),
    "reject": packs.PHASES,
    "declare": ("launch",),
}

#: What stands beside a form, and the forms beside which it means something.
_MODIFIERS = {
    "stride": ("add",),
    "error": ("reject", "require"),
    "else": ("refine",),
    "rows": ("align", "add", "refine"),
    "columns": ("align", "add", "refine"),
}

#: Forms that change or refuse a size, and so owe the reader a reason.
_CHANGING = ("add", "require", "refine", "set", "reject")


def pack(context: Context, said: schema.PackFile, layer: str) -> packs.Pack:
    """The pack that a file says; faults go to the document's problems."""
    _check_kind(context, said)
    listed_rules, listed_contracts = said.get("rules") or (), said.get("contracts") or ()
    rules = tuple(_rule(context, said, index, rule) for index, rule in enumerate(listed_rules))
    contracts = tuple(
        _contract(context, said["pack"], index, contract) for index, contract in enumerate(listed_contracts)
    )
    _check_ids(context, "rules", [rule["id"] for rule in listed_rules])
    _check_ids(context, "contracts", [contract["id"] for contract in listed_contracts])
    return packs.Pack(
        said["pack"],
        said.get("phase"),
        conditions(context, said.get("for"), ("for",), None),
        covers(context, said.get("covers") or {}),
        _names(said.get("before")),
        rules,
        contracts,
        layer,
        context.place("pack"),
    )


def _names(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


def _check_kind(context: Context, said: schema.PackFile) -> None:
    rules, contracts, phase = said.get("rules"), said.get("contracts"), said.get("phase")
    if rules is not None and contracts is not None:
        context.problem(
            "R230",
            "has both rules and contracts",
            "put the contracts into a pack of their own",
            ("contracts",),
            at_key=True,
        )
    if rules is not None and phase is None:
        context.problem(
            "R231", "`phase` is missing", f"add `phase:` with one of {', '.join(packs.PHASES)}", ()
        )
    if rules is None and phase is not None:
        context.problem(
            "R232", "`phase` without rules", "add `rules:`, or leave the phase out", ("phase",), at_key=True
        )
    if all(said.get(key) is None for key in ("rules", "contracts", "vocabulary", "defaults")):
        context.problem("R233", "says nothing", "add `rules:`, `contracts:` or `vocabulary:`", ())
    for key in ("rules", "contracts"):
        if said.get(key) == []:
            context.problem(
                "R233", f"`{key}` is empty", "add an entry, or leave the key out", (key,), at_key=True
            )


def _check_ids(context: Context, key: str, ids: list[str]) -> None:
    first: dict[str, int] = {}
    for index, name in enumerate(ids):
        if name in first:
            line = context.document.locate((key, first[name], "id")).line
            context.problem(
                "R220",
                f"id `{name}` again",
                f"it stands in line {line}: give each its own",
                (key, index, "id"),
            )
        else:
            first[name] = index


def _rule(context: Context, said: schema.PackFile, index: int, rule: schema.Rule) -> packs.Rule:
    path: Path = ("rules", index)
    phase = said.get("phase")
    outcome = _outcome(context, phase, rule, path)
    return packs.Rule(
        said["pack"],
        rule["id"],
        phase or "",
        conditions(context, rule.get("when"), (*path, "when"), rule["id"]),
        conditions(context, rule.get("unless"), (*path, "unless"), rule["id"]),
        outcome,
        rule.get("why"),
        rule.get("source"),
        rule.get("evidence"),
        context.place(*path),
    )


def _outcome(context: Context, phase: str | None, rule: schema.Rule, path: Path) -> packs.Outcome:
    written = [form for form in _FORMS if rule.get(form) is not None]
    if len(written) != 1:
        legal = ", ".join(f"`{form}`" for form in _FORMS)
        said = " and ".join(f"`{form}`" for form in written) or "no outcome"
        context.problem("R210", f"has {said}", f"write exactly one of {legal}", path, rule["id"])
        return packs.Outcome("align", packs.NATIVE, packs.NATIVE)
    form = written[0]
    if phase is not None and phase not in _FORMS[form]:
        fix = f"it belongs to {', '.join(_FORMS[form])}"
        context.problem(
            "R211", f"`{form}` means nothing in phase {phase}", fix, (*path, form), rule["id"], at_key=True
        )
    outcome = _form(context, form, rule, path)
    _check_modifiers(context, form, rule, path)
    changes = form in _CHANGING or (
        form == "align"
        and (outcome.hidden, outcome.intermediate, outcome.counted) != (*(packs.NATIVE,) * 2, None)
    )
    if changes and rule.get("why") is None:
        context.problem(
            "R212", "changes or refuses a size without `why`", "add `why: …` in a few words", path, rule["id"]
        )
    return outcome._replace(
        stride=rule.get("stride") or False,
        experts=rule.get("experts") or 0,
        error=rule.get("error"),
        rows=tuple(sorted((rule.get("rows") or {}).items())),
        columns=tuple(sorted((rule.get("columns") or {}).items())),
    )


def _check_modifiers(context: Context, form: str, rule: schema.Rule, path: Path) -> None:
    for key, forms in _MODIFIERS.items():
        if rule.get(key) and form not in forms:
            fix = f"it goes with {' or '.join(f'`{other}`' for other in forms)}"
            context.problem(
                "R215", f"`{key}` means nothing beside `{form}`", fix, (*path, key), rule["id"], at_key=True
            )
    if form == "refine" and rule.get("else") is None:
        context.problem(
            "R216",
            "`refine` without `else`",
            "say what holds where no block fits: `else: {reject: …}`",
            path,
            rule["id"],
        )


def _form(context: Context, form: str, rule: schema.Rule, path: Path) -> packs.Outcome:
    where, name = (*path, form), rule["id"]
    if form in ("align", "require", "set"):
        said: Any = rule.get(form)
        hidden, intermediate = _both(context, said, where, name)
        if form == "set":
            return packs.Outcome(form, *_as_set(said, hidden, intermediate))
        return packs.Outcome(form, hidden, intermediate, counted=_count(context, said, where, name))
    if form == "add":
        return packs.Outcome(form, add=_amounts(context, rule["add"] or {}, where, name))
    if form == "refine" and (refined := rule["refine"]):
        refine = packs.Refine(
            tuple(refined["blocks"]), refined.get("fits") or "intermediate", refined["floor"]
        )
        return packs.Outcome(form, refine=refine, otherwise=_otherwise(context, rule, path))
    if form == "use":
        return packs.Outcome(form, target=_backend(context, rule["use"] or "", where, name))
    if form == "declare" and (pads := rule["declare"]):
        return packs.Outcome(form, pads=(_pad(pads["hidden_pad"]), _pad(pads["intermediate_pad"])))
    return packs.Outcome("reject", target=rule["reject"])


def _as_set(
    said: schema.Set, *multiples: packs.Multiple
) -> tuple[packs.Multiple | None, packs.Multiple | None]:
    """The two sizes that are set, without one of which nothing is said."""
    hidden, intermediate = multiples
    return (
        hidden if said.get("hidden") is not None else None,
        intermediate if said.get("intermediate") is not None else None,
    )


def _backend(context: Context, name: str, path: Path, rule: str) -> str:
    members = context.vocabulary.members("backend", name)
    if members is None or len(members) > 1:
        context.problem(
            "R203", f"unknown backend `{name}`", context.vocabulary.suggestion("backend", name), path, rule
        )
        return name
    return next(iter(members))


def _otherwise(context: Context, rule: schema.Rule, path: Path) -> packs.Outcome | None:
    said = rule.get("else")
    if said is None:
        return None
    align, reject = said.get("align"), said.get("reject")
    if (align is None) == (reject is None):
        context.problem(
            "R217",
            "`else` needs one of `align` and `reject`",
            "write exactly one of the two",
            (*path, "else"),
            rule["id"],
        )
        return None
    if reject is not None:
        return packs.Outcome("reject", target=reject, error=said.get("error"))
    hidden, intermediate = _both(context, align, (*path, "else", "align"), rule["id"])
    return packs.Outcome("align", hidden, intermediate)


def _amounts(
    context: Context, said: schema.Add, path: Path, rule: str
) -> tuple[tuple[str, packs.Amount], ...]:
    amounts = []
    for dimension in packs.DIMENSIONS:
        amount: Any = said.get(dimension)
        if isinstance(amount, dict):
            amounts.append((dimension, packs.Amount(amount["bytes"], "bytes")))
        elif amount is not None:
            amounts.append((dimension, packs.Amount(amount)))
    if not amounts:
        context.problem(
            "R218", "`add` names no dimension", "write `{hidden: …}` or `{intermediate: …}`", path, rule
        )
    return tuple(amounts)


def _pad(said: schema.Pad) -> packs.Pad:
    if isinstance(said, str):
        return packs.Pad(said)
    return packs.Pad("floor", said.get("floor") or 1, said.get("times") or 1)


def _both(context: Context, said: Any, path: Path, rule: str) -> tuple[packs.Multiple, packs.Multiple]:
    if not isinstance(said, dict) or (path[-1] != "set" and said.keys() & schema.KEYS_OF_MULTIPLE):
        multiple = _multiple(context, said, path, rule)
        return multiple, multiple
    if not said:
        context.problem(
            "R218",
            f"`{path[-1]}` names no dimension",
            "write `{hidden: …}` or `{intermediate: …}`",
            path,
            rule,
        )
    return (
        _multiple(context, said.get("hidden"), (*path, "hidden"), rule),
        _multiple(context, said.get("intermediate"), (*path, "intermediate"), rule),
    )


def _count(context: Context, said: Any, path: Path, rule: str) -> packs.Count | None:
    """The demand on the number of experts, where there is one."""
    count = said.get("experts") if isinstance(said, dict) else None
    if count is None:
        return None
    where = (*path, "experts")
    of, least = (
        (count.get("multiple", 1), count.get("at_least")) if isinstance(count, dict) else (count, None)
    )
    multiple = _items(context, [of], where, rule)
    fewest = _items(context, [least], where, rule) if least is not None else ()
    return packs.Count(*multiple, *fewest) if multiple else None


def _multiple(context: Context, said: Any, path: Path, rule: str) -> packs.Multiple:
    if said is None or said == "native":
        return packs.NATIVE
    if not isinstance(said, dict):
        return packs.Multiple("times", _items(context, [said], path, rule))
    least = said.get("at_least")
    for op in ("lcm", "max"):
        if op in said:
            return packs.Multiple(op, _items(context, said[op], (*path, op), rule), least)
    if "snap" in said:
        return packs.Multiple("snap", tuple(sorted(set(said["snap"]))))
    if "bytes" in said:
        return packs.Multiple("bytes", (said["bytes"],), least)
    of = said.get("multiple", 1)
    return packs.Multiple("times", _items(context, [of], (*path, "multiple"), rule), least)


def _items(context: Context, said: Sequence[int | str], path: Path, rule: str) -> tuple[int | str, ...]:
    items: list[int | str] = []
    several = len(said) > 1
    for index, item in enumerate(said):
        where = (*path, index) if several else path
        if isinstance(item, str) and item == "native":
            items.append(1)
        elif isinstance(item, str) and facts.kind(item) != "integer":
            near = did_you_mean(item, ["native", *facts.INTEGERS])
            fix = f"write `{near}`" if near else "write an integer, `native` or an integer fact"
            context.problem("R213", f"`{item}` is no integer fact", fix, where, rule)
        elif isinstance(item, str) and facts.lowest(item) == 0:
            fix = "write an integer, or a fact that is never 0"
            context.problem("R213", f"`{item}` may be 0, which is no multiple", fix, where, rule)
        else:
            items.append(item)
    return tuple(items)


def _contract(context: Context, name: str, index: int, said: schema.Contract) -> packs.Contract:
    path: Path = ("contracts", index)
    required, rule = said["require"], said["id"]
    demands = [
        _demand(context, of, demand, (*path, "require", of), rule)
        for of in schema.DEMANDED
        if (demand := cast("Mapping[str, Any]", required).get(of)) is not None
    ]
    wanted = conditions(context, required.get("facts"), (*path, "require", "facts"), rule)
    if not demands and not required.get("facts"):
        context.problem(
            "R219",
            "`require` demands nothing",
            "name a size, as in `{hidden: 128}`",
            (*path, "require"),
            rule,
        )
    return packs.Contract(
        name,
        rule,
        conditions(context, said.get("when"), (*path, "when"), rule),
        conditions(context, said.get("unless"), (*path, "unless"), rule),
        tuple(demands),
        said["breaks"],
        said["why"],
        said.get("source"),
        said.get("evidence"),
        context.place(*path),
        wanted,
    )


def _demand(context: Context, of: str, said: Any, path: Path, rule: str) -> packs.Demand:
    if isinstance(said, int):
        return packs.Demand(of, (packs.Multiple("times", (said,)),))
    is_pad = of.endswith("_pad")
    for key in ("floor", "at_most"):
        if key in said and not is_pad:
            fix = "write it under `hidden_pad` or `intermediate_pad`"
            context.problem("R221", f"`{key}` is about declared pads", fix, (*path, key), rule, at_key=True)
    multiples: list[packs.Multiple] = []
    if "multiple" in said:
        items = _items(context, [said["multiple"]], (*path, "multiple"), rule)
        multiples.append(packs.Multiple("times", items))
    for op, key in (("lcm", "lcm"), ("max", "max_of")):
        if key in said:
            multiples.append(packs.Multiple(op, _items(context, said[key], (*path, key), rule)))
    multiples += [
        packs.Multiple("times", _items(context, [item], (*path, "any_of", index), rule))
        for index, item in enumerate(said.get("any_of", ()))
    ]
    exactly = said.get("exactly")
    native = exactly == "native"
    if native and of not in packs.DIMENSIONS:
        fix = "write it under `hidden` or `intermediate`"
        context.problem("R221", "`native` is about sizes", fix, (*path, "exactly"), rule, at_key=True)
    listed = exactly if isinstance(exactly, list) else [exactly]
    sizes = tuple(size for size in listed if isinstance(size, int))
    floor, at_most = said.get("floor", 1), said.get("at_most") == "actual"
    demand = packs.Demand(
        of, tuple(multiples), sizes, said.get("min"), said.get("max"), floor, at_most, native
    )
    if demand == packs.Demand(of):
        context.problem(
            "R219", f"`{of}` demands nothing", "give a multiple, `exactly`, `min` or `max`", path, rule
        )
    return demand
