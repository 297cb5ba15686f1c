from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moe_align.space import (
    Box,
    FactSet,
    Index,
    Ints,
    Member,
    Region,
    Space,
    SpaceTooLarge,
    Values,
    VersionSet,
    outside,
)
from moe_align.space import ints as room
from moe_align.versions import Key, parse_range

# Sets of words

words = st.frozensets(st.sampled_from("abcd"))


@given(words, words)
def test_sets_of_words_are_sets(one: frozenset[str], two: frozenset[str]) -> None:
    ones, twos = Values.of(one), Values.of(two)
    assert (ones & twos).members == one & two
    assert (ones | twos).members == one | two
    assert (ones - twos).members == one - two
    assert (ones <= twos) == (one <= two)
    assert ones.isdisjoint(twos) == one.isdisjoint(two)
    assert ones.is_empty == (not one)
    assert ones.is_singleton == (len(one) == 1)
    assert all((word in ones) == (word in one) for word in "abcd")
    assert (ones == twos) == (one == two)
    assert not one or ones.witness() == min(one)
    assert list(ones) == sorted(one)


@pytest.mark.parametrize(
    ("values", "text"), [(["gfx950", "gfx942"], "gfx942, gfx950"), (["rocm"], "rocm"), ([], "none")]
)
def test_a_set_of_words_is_written_in_order(values: list[str], text: str) -> None:
    assert str(Values.of(values)) == text


# Sets of integers: trees of operations, each with the members below FAR found one by one.

FAR = 2000
NEAR = 700
leaves = st.one_of(
    st.lists(st.integers(0, 60), max_size=4).map(lambda members: Ints.of(*members)),
    st.tuples(st.integers(0, 60), st.none() | st.integers(0, 60)).map(lambda ends: Ints.between(*ends)),
    st.integers(1, 6).map(Ints.multiples),
    st.sampled_from([Ints.all(), Ints.empty()]),
)
OPERATIONS: dict[str, Callable[[Ints, Ints], Ints]] = {
    "&": lambda one, two: one & two,
    "|": lambda one, two: one | two,
    "-": lambda one, two: one - two,
}
ints = st.recursive(
    leaves,
    lambda sets: st.one_of(
        st.tuples(st.sampled_from(sorted(OPERATIONS)), sets, sets).map(
            lambda made: OPERATIONS[made[0]](made[1], made[2])
        ),
        st.tuples(sets, st.integers(1, 6)).map(lambda made: made[0].preimage_round_up(made[1])),
        st.tuples(sets, st.integers(1, 6)).map(lambda made: made[0].image_round_up(made[1])),
    ),
    max_leaves=8,
)


def members(numbers: Ints, end: int = NEAR) -> set[int]:
    return {number for number in range(end) if number in numbers}


@given(ints, ints)
def test_sets_of_integers_are_sets(one: Ints, two: Ints) -> None:
    ones, twos = members(one), members(two)
    assert members(one & two) == ones & twos
    assert members(one | two) == ones | twos
    assert members(one - two) == ones - twos
    assert (one <= two) == (ones <= twos)
    assert one.isdisjoint(two) == ones.isdisjoint(twos)
    assert (one == two) == (ones == twos)
    assert one.is_empty == (not ones)
    assert one.is_singleton == (len(ones) == 1)


@given(ints, ints)
def test_one_set_of_integers_is_one_value(one: Ints, two: Ints) -> None:
    again = (one - two) | (one & two)
    assert again == one
    assert hash(again) == hash(one)
    assert Ints.all() - (Ints.all() - one) == one
    assert pickle.loads(pickle.dumps(one)) == one


@given(ints)
def test_the_ends_are_the_least_and_greatest_member(numbers: Ints) -> None:
    inside = members(numbers)
    if not inside:
        return
    assert numbers.min() == numbers.witness() == min(inside)
    greatest = numbers.max()
    assert greatest == max(inside) if greatest is not None else max(inside) > NEAR - 70


@given(ints, st.integers(1, 9))
def test_images_and_preimages_are_those_of_the_functions(numbers: Ints, step: int) -> None:
    inside = members(numbers, FAR)
    up = {number: -(-number // step) * step for number in range(FAR - 10)}
    assert members(numbers.preimage_round_up(step)) == {x for x in range(NEAR) if up[x] in inside}
    assert members(numbers.image_round_up(step)) == {up[x] for x in inside if x in up and up[x] < NEAR}
    assert members(numbers.preimage_add(step)) == {x - step for x in inside if step <= x < NEAR + step}
    assert members(numbers.preimage_floor_div(step)) == {
        x for x in range(0, NEAR, step) if x // step in inside
    }
    assert members(numbers.quotients(step), NEAR // step) == {
        x for x in range(NEAR // step) if x * step in inside
    }


@given(st.lists(st.integers(0, 200), max_size=60))
def test_many_listed_integers_equal_the_same_made_otherwise(listed: list[int]) -> None:
    one_by_one = Ints.empty()
    for number in listed:
        one_by_one |= Ints.of(number)
    assert one_by_one == Ints.of(*listed)
    assert members(one_by_one) == set(listed)


def test_what_is_kept_of_integers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_MOST_KEPT", 3)
    monkeypatch.setattr(room, "_TOGETHER", {})
    for step in range(2, 9):
        both = Ints.multiples(step) & Ints.multiples(3)
        assert both == Ints.multiples(step) & Ints.multiples(3)
        assert len(room._TOGETHER) <= 3


def test_a_long_repeating_part_equals_its_listing() -> None:
    long = Ints.multiples(2) & Ints.between(0, 200)
    listed = Ints.of(*range(0, 201, 2))
    assert long == listed
    assert listed == long
    assert hash(long) == hash(listed)
    assert long != Ints.of(*range(0, 201, 4)) | Ints.of(2)
    assert long | Ints.of(100) == long
    assert (long | Ints.of(202)).pieces == (Ints.multiples(2) & Ints.between(0, 202)).pieces
    assert (long - Ints.of(0)) | Ints.of(0) == long
    assert str(long - Ints.of(100)) == "multiple of 2, <= 98 or multiple of 2, >= 102, <= 200"


def test_long_parts_of_two_patterns_stay_apart() -> None:
    two = (Ints.multiples(2) & Ints.between(0, 100)) | (Ints.multiples(3) & Ints.between(101, 200))
    assert str(two) == "multiple of 2, <= 100 or multiple of 3, >= 102, <= 198"
    assert members(two) == {*range(0, 101, 2), *range(102, 201, 3)}


def test_a_set_of_integers_is_no_other_value() -> None:
    assert "1" not in Ints.of(1)
    assert Ints.of(1) != 1
    assert Ints.empty() != Values.of(())
    assert hash(Ints.empty()) == hash(Ints.of(1) - Ints.of(1))


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        (Ints.all(), "any"),
        (Ints.empty(), "none"),
        (Ints.between(0, 192), "<= 192"),
        (Ints.between(193, 256), "193..256"),
        (Ints.between(193, None), ">= 193"),
        (Ints.between(-5, 0), "0"),
        (Ints.between(5, 4), "none"),
        (Ints.of(384), "384"),
        (Ints.of(128, 192), "128, 192"),
        (Ints.of(1, 2, 3, 7), "1..3, 7"),
        (Ints.of(0, 1, 7), "<= 1 or 7"),
        (Ints.multiples(1), "any"),
        (Ints.multiples(128), "multiple of 128"),
        (Ints.multiples(128) & Ints.between(1000, None), "multiple of 128, >= 1024"),
        (Ints.multiples(128) & Ints.between(0, 1024), "multiple of 128, <= 1024"),
        (Ints.multiples(32) & Ints.between(0, 4096), "multiple of 32, <= 4096"),
        (Ints.all() - Ints.multiples(128), "not multiple of 128"),
        (Ints.multiples(64) - Ints.multiples(128), "multiple of 64, not of 128"),
        (Ints.multiples(64) - Ints.multiples(512), "multiple of 64, not of 512"),
        (Ints.between(300, None) - Ints.multiples(128), "not multiple of 128, >= 300"),
        ((Ints.multiples(8) - Ints.multiples(16)).preimage_round_up(4), "5..8 mod 16"),
        (Ints.multiples(4) | Ints.multiples(6), "0, 4, 6, 8 mod 12"),
        (Ints.multiples(2) | Ints.multiples(15), "16 residues mod 30"),
        (Ints.of(10, 20, 30, 40, 50, 57), "multiple of 10, >= 10, <= 50 or 57"),
        (Ints.of(11, 21, 31, 41, 51), "11, 21, 31, 41, 51"),
        (Ints.of(10, 20, 30, 40, 51, 60), "10, 20, 30, 40, 51, 60"),
        (Ints.between(0, 64) | Ints.between(128, None), "<= 64 or >= 128"),
    ],
)
def test_a_set_of_integers_is_written_for_people(numbers: Ints, text: str) -> None:
    assert str(numbers) == text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Ints.of(3, -1), "sets hold integers from 0 up, not -1"),
        (lambda: Ints.multiples(0), "a multiple is at least 1, not 0"),
        (lambda: Ints.all().preimage_round_up(0), "a multiple is at least 1, not 0"),
        (lambda: Ints.all().image_round_up(0), "`multiple` is at least 1, not 0"),
        (lambda: Ints.all().preimage_floor_div(0), "a divisor is at least 1, not 0"),
        (lambda: Ints.all().quotients(0), "a multiple is at least 1, not 0"),
        (lambda: Ints.all().preimage_add(-1), "what is added is at least 0, not -1"),
        (lambda: Ints.empty().min(), "an empty set has no member"),
        (lambda: Ints.empty().max(), "an empty set has no member"),
        (lambda: Values.of(()).witness(), "an empty set has no member"),
    ],
)
def test_integers_that_cannot_be_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: Ints.multiples(2**20 + 1),
        lambda: Ints.multiples(1021) & Ints.multiples(1031),
        lambda: Ints.multiples(1021).preimage_floor_div(1031),
        lambda: Ints.multiples(1021).image_round_up(1031),
    ],
)
def test_too_many_residues_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(SpaceTooLarge, match=r"need \d+ residue classes here, more than 1048576"):
        call()


def test_sets_at_sizes_of_models_are_exact() -> None:
    fits = Ints.multiples(128).preimage_round_up(64)
    assert 384 in fits
    assert 320 not in fits
    assert 321 in fits
    assert Ints.of(384).preimage_floor_div(8) == Ints.of(3072)
    assert Ints.of(3072 // 8).image_round_up(512) == Ints.of(512)


# Boxes and regions, against every point of a small space.

KEYS: tuple[Key, ...] = ((0, 1), (0, 2), (0, 3))
DOMAIN: dict[str, frozenset[Member]] = {
    "arch": frozenset({"x", "y", "z"}),
    "backend": frozenset({"a", "b", "c"}),
    "platform": frozenset({"p", "q"}),
    "size": frozenset({0, 1, 2, 3}),
    "vllm": frozenset(KEYS),
}
POINTS = [dict(zip(DOMAIN, point, strict=True)) for point in product(*(map(sorted, DOMAIN.values())))]
Plain = Mapping[str, frozenset[Member]]
PlainImplications = Mapping[tuple[str, str], Plain]


def fact_set(fact: str, chosen: frozenset[Member]) -> FactSet:
    if fact == "size":
        return Ints.of(*(member for member in chosen if isinstance(member, int)))
    if fact == "vllm":
        releases = VersionSet.empty()
        for member in chosen:
            assert isinstance(member, tuple)
            releases |= VersionSet.exactly(member)
        return releases
    return Values.of(str(member) for member in chosen)


def fact_sets(plain: Plain) -> dict[str, FactSet]:
    return {fact: fact_set(fact, chosen) for fact, chosen in plain.items()}


def plain_sets(facts: tuple[str, ...] = tuple(DOMAIN), least: int = 0) -> st.SearchStrategy[Plain]:
    return st.fixed_dictionaries(
        {},
        optional={
            fact: st.frozensets(st.sampled_from(sorted(DOMAIN[fact])), min_size=least) for fact in facts
        },
    )


premises = [(fact, value) for fact in sorted(DOMAIN)[:3] for value in sorted(map(str, DOMAIN[fact]))]
implications = st.dictionaries(
    st.sampled_from(premises), plain_sets(("arch", "backend", "platform", "size")), max_size=6
)


def make_space(plain: PlainImplications) -> Space:
    return Space(fact_sets(DOMAIN), {premise: fact_sets(sets) for premise, sets in plain.items()})


def admitted(plain: PlainImplications) -> list[dict[str, Member]]:
    return [
        point
        for point in POINTS
        if all(
            point[name] in chosen
            for (fact, value), sets in plain.items()
            if point[fact] == value
            for name, chosen in sets.items()
        )
    ]


def within(plain: Plain, points: list[dict[str, Member]]) -> list[dict[str, Member]]:
    return [point for point in points if all(point[fact] in chosen for fact, chosen in plain.items())]


def in_any(plains: list[Plain], points: list[dict[str, Member]]) -> list[dict[str, Member]]:
    return [point for point in points if any(within(plain, [point]) for plain in plains)]


def held(holder: Box | Region) -> list[dict[str, Member]]:
    return [point for point in POINTS if holder.contains(point)]


def none_meet(boxes: Sequence[Box]) -> bool:
    return all(left.isdisjoint(right) for left, right in combinations(boxes, 2))


def without(points: list[dict[str, Member]], others: list[dict[str, Member]]) -> list[dict[str, Member]]:
    return [point for point in points if point not in others]


@settings(max_examples=60, deadline=None)
@given(implications, plain_sets(), plain_sets())
def test_boxes_hold_the_points_that_their_sets_and_the_implications_allow(
    rules: PlainImplications, one: Plain, two: Plain
) -> None:
    space, points = make_space(rules), admitted(rules)
    ones, twos = within(one, points), within(two, points)
    box, other = space.box(fact_sets(one)), space.box(fact_sets(two))
    assert held(box) == ones
    assert held(box & other) == [point for point in ones if point in twos]
    assert box.is_empty == (not ones)
    assert box.isdisjoint(other) == (not [point for point in ones if point in twos])
    assert (box <= other) == (not without(ones, twos))
    pieces = box - other
    assert held(Region.of(space, pieces)) == without(ones, twos)
    assert none_meet(pieces)
    assert not any(piece.is_empty for piece in pieces)
    assert not ones or box.witness() in ones


@settings(max_examples=60, deadline=None)
@given(
    implications,
    st.lists(plain_sets(least=1), max_size=4),
    st.lists(plain_sets(least=1), max_size=4),
)
def test_regions_are_unions_of_points(rules: PlainImplications, one: list[Plain], two: list[Plain]) -> None:
    space, points = make_space(rules), admitted(rules)
    ones, twos = in_any(one, points), in_any(two, points)
    region = Region.of(space, (space.box(fact_sets(plain)) for plain in one))
    other = Region.of(space, (space.box(fact_sets(plain)) for plain in two))
    assert held(region) == ones
    assert held(region | other) == in_any([*one, *two], points)
    assert held(region & other) == [point for point in ones if point in twos]
    assert held(region - other) == without(ones, twos)
    assert region.is_empty == (not ones)
    assert (region <= other) == (not without(ones, twos))
    assert (region == other) == (ones == twos)
    assert region.isdisjoint(other) == (not [point for point in ones if point in twos])
    assert (region - other) | (region & other) == region
    assert hash((region - other) | (region & other)) == hash(region)
    assert not ones or region.witness() in ones


@settings(max_examples=60, deadline=None)
@given(implications, st.lists(plain_sets(least=1), max_size=5))
def test_a_cover_holds_the_same_in_no_more_boxes(rules: PlainImplications, plains: list[Plain]) -> None:
    space = make_space(rules)
    region = Region.of(space, (space.box(fact_sets(plain)) for plain in plains))
    cover = region.cover()
    assert len(cover) <= len(region.boxes)
    assert held(Region(space, cover)) == held(region)
    disjoint = region.disjoint()
    assert disjoint == region
    assert none_meet(disjoint.boxes)


@settings(max_examples=40, deadline=None)
@given(st.lists(plain_sets(), max_size=8), plain_sets())
def test_an_index_names_every_box_that_is_met(plains: list[Plain], plain: Plain) -> None:
    space = make_space({})
    boxes = [space.box(fact_sets(each)) for each in plains]
    box = space.box(fact_sets(plain))
    near = Index(boxes).near(box)
    assert near == sorted(set(near))
    assert {position for position, other in enumerate(boxes) if not box.isdisjoint(other)} <= set(near)


SPACE = Space(
    {
        "backend": Values.of(["aiter_bf16", "triton", "deep_gemm"]),
        "platform": Values.of(["rocm", "cuda"]),
        "arch": Values.of(["gfx942", "gfx950", "sm90"]),
        "intermediate": Ints.between(1, None),
        "vllm": parse_range(">=0.14,<0.34"),
    },
    {
        ("backend", "aiter_bf16"): {"arch": Values.of(["gfx950"])},
        ("backend", "deep_gemm"): {"platform": Values.of(["cuda"])},
        ("arch", "gfx942"): {"platform": Values.of(["rocm"])},
        ("arch", "gfx950"): {"platform": Values.of(["rocm"])},
        ("arch", "sm90"): {"platform": Values.of(["cuda"])},
    },
)


def at(**sets: FactSet) -> Box:
    return SPACE.box(sets)


def cover_text(boxes: list[Box]) -> list[str]:
    return list(map(str, Region.of(SPACE, boxes).cover()))


AITER = Values.of(["aiter_bf16"])


def test_implications_reach_through_each_other() -> None:
    assert at(backend=AITER, platform=Values.of(["cuda"])).is_empty
    assert at(backend=AITER) <= at(platform=Values.of(["rocm"]))
    assert Region.of(SPACE, [at(backend=AITER)]) == Region.of(
        SPACE, [at(backend=AITER, arch=Values.of(["gfx950"]), platform=Values.of(["rocm"]))]
    )
    assert at(backend=AITER).witness() == {
        "backend": "aiter_bf16",
        "platform": "rocm",
        "arch": "gfx950",
        "intermediate": 1,
        "vllm": (0, 14),
    }


def test_no_implication_alone_but_two_together_empty_a_box() -> None:
    both = Values.of(["1", "2"])
    space = Space(
        {"a": both, "b": both, "c": both},
        {
            ("a", "1"): {"c": Values.of(["1"])},
            ("a", "2"): {"c": Values.of(["2"])},
            ("b", "1"): {"c": Values.of(["2"]), "a": Values.of(["1"])},
            ("b", "2"): {"c": Values.of(["1"]), "a": Values.of(["2"])},
        },
    )
    assert space.box().is_empty
    assert Region.everything(space).is_empty


def test_a_cover_says_what_matters_only() -> None:
    implied = at(backend=AITER, platform=Values.of(["rocm"]), intermediate=Ints.between(1, 192))
    assert cover_text([implied]) == ["backend: aiter_bf16 · intermediate: 1..192"]
    two = [at(backend=AITER, platform=Values.of(["rocm"])), at(backend=Values.of(["triton"]))]
    assert cover_text(two) == ["backend: aiter_bf16, triton"]
    cut = [
        at(backend=Values.of(["triton"]), intermediate=Ints.between(1, 192)),
        at(backend=Values.of(["triton"]), intermediate=Ints.between(193, None)),
        at(backend=AITER, vllm=parse_range("<0.28")),
        at(backend=AITER, vllm=parse_range(">=0.28")),
    ]
    assert cover_text(cut) == ["backend: aiter_bf16, triton"]
    nested = [
        at(arch=Values.of(["gfx950"]), intermediate=Ints.between(193, 256)),
        at(arch=Values.of(["gfx950", "gfx942"]), intermediate=Ints.between(1, 192)),
    ]
    assert cover_text(nested) == [
        "arch: gfx942, gfx950 · intermediate: 1..192",
        "arch: gfx950 · intermediate: 1..256",
    ]
    assert Region.everything(SPACE).cover() == (SPACE.box(),)
    assert str(Region.everything(SPACE)) == "any"
    assert Region.of(SPACE).cover() == ()
    assert str(Region.of(SPACE)) == "none"


def test_a_condition_that_others_hold_together_is_left_out() -> None:
    low = at(intermediate=Ints.between(1, 100), platform=Values.of(["rocm"]))
    high = at(intermediate=Ints.between(50, None), vllm=parse_range("<0.28"))
    third = at(platform=Values.of(["rocm"]), vllm=parse_range("<0.28"))
    assert len(Region.of(SPACE, [low, high, third]).cover()) == 2


def test_very_many_boxes_are_merged_only(monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = at(intermediate=Ints.between(1, 200)), at(backend=AITER, intermediate=Ints.between(201, 300))
    region = Region.of(SPACE, [low, high])
    assert cover_text([low, high]) == ["backend: aiter_bf16 · intermediate: 1..300", "intermediate: 1..200"]
    monkeypatch.setattr("moe_align.space.region._MOST_WIDENED", 1)
    assert set(region.cover()) == {low, high}


def test_a_cover_of_very_many_boxes_is_still_the_same_region() -> None:
    rng = random.Random(7)
    boxes = [
        at(
            backend=Values.of([rng.choice(["aiter_bf16", "triton", "deep_gemm"])]),
            intermediate=Ints.of(number),
            vllm=parse_range(f"=={rng.choice(['0.20', '0.21'])}"),
        )
        for number in range(2, 600, 3)
    ]
    region = Region.of(SPACE, boxes)
    cover = region.cover()
    assert len(cover) < 20
    assert Region(SPACE, cover) == region


def test_regions_and_boxes_survive_pickling_together() -> None:
    region = Region.of(SPACE, [at(backend=AITER), at(intermediate=Ints.multiples(128))])
    again: Region = pickle.loads(pickle.dumps(region))
    assert list(map(str, again.boxes)) == list(map(str, region.boxes))
    assert again.witness() == region.witness()
    assert again == again - Region.of(again.space)


def test_boxes_are_values() -> None:
    one, two = at(backend=AITER), at(backend=AITER, platform=Values.of(["rocm", "cuda", "tpu"]))
    assert one == two
    assert len({one, two, SPACE.box()}) == 2
    assert two["platform"] == Values.of(["rocm", "cuda"])
    assert list(outside([one], [two])) == []
    assert Region.of(SPACE, [one]) != one
    assert Region.of(SPACE, [one]) != Region.of(make_space({}))


def test_what_was_found_is_forgotten_when_it_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moe_align.space.box._MOST_REMEMBERED", 2)
    space = make_space({("backend", "a"): {"size": frozenset({1})}})
    sizes = [space.box({"backend": Values.of("a"), "size": Ints.of(size)}) for size in range(4)]
    assert [box.is_empty for box in sizes * 2] == [True, False, True, True] * 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SPACE.box({"backand": AITER}), "unknown fact `backand`"),
        (lambda: SPACE.box({"backend": Ints.all()}), "`backend` is in Values, not in Ints"),
        (lambda: Space({"backend": Values.of(())}), "`backend` can have no value at all"),
        (lambda: Space({"a": AITER}, {("a", "x"): {}}), "`x` is not a value of `a`"),
        (lambda: Space({"a": AITER}, {("b", "x"): {}}), "unknown fact `b`"),
        (lambda: Space({"a": Ints.all()}, {("a", "x"): {}}), "`a` is in Ints, not in Values"),
        (lambda: at(backend=Values.of(())).witness(), "an empty box has no point"),
        (lambda: Region.of(SPACE).witness(), "an empty region has no point"),
    ],
)
def test_spaces_that_cannot_be_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
