from __future__ import annotations

import pickle
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from moe_align.versions import Key, Release, VersionSet, key_text, normal, parse_range, release


@pytest.mark.parametrize(
    ("text", "key", "note", "local"),
    [
        ("0.33", (0, 33), None, None),
        ("0.33.0", (0, 33), None, None),
        (" v0.14.1 ", (0, 14, 1), None, None),
        ("0", (0,), None, None),
        ("0.0.0", (0,), None, None),
        ("0.33.1rc1", (0, 33, 1), "pre-release treated as 0.33.1", None),
        ("0.33.1rc1.dev50", (0, 33, 1), "pre-release treated as 0.33.1", None),
        ("0.33.1rc1.dev50+gabc", (0, 33, 1), "pre-release treated as 0.33.1", "gabc"),
        ("0.33.1.dev3", (0, 33, 1), "development build treated as 0.33.1", None),
        ("0.33.0.dev3", (0, 33), "development build treated as 0.33.0", None),
        ("0.1.20-46-gabc", (0, 1, 20), "source build treated as 0.1.20", "46.gabc"),
        ("v0.1.20-46-g0a1b2c3-dirty", (0, 1, 20), "source build treated as 0.1.20", "46.g0a1b2c3"),
        ("v0.2.0rc1-3-gabc", (0, 2), "pre-release treated as 0.2.0", "3.gabc"),
        ("0.9.2+g0123abc.rocm700", (0, 9, 2), "source build treated as 0.9.2", "g0123abc.rocm700"),
        ("0.14.1+rocm700", (0, 14, 1), None, "rocm700"),
        ("0.9.2.post1", (0, 9, 2, -1, 1), None, None),
        ("0.9.0.post0", (0, 9, -1, 0), None, None),
        ("0.9.2.post2.dev1", (0, 9, 2, -1, 2), "development build treated as 0.9.2.post2", None),
        ("1!0.2", (10**12, 2), None, None),
    ],
)
def test_a_build_is_treated_as_its_release_and_says_so(
    text: str, key: Key, note: str | None, local: str | None
) -> None:
    assert release(text) == Release(key, text.strip(), note, local)
    assert str(release(text)) == text.strip()


@pytest.mark.parametrize("text", ["", "dev", "0.3.x", "abc-46-gabc", "0.1.20-gabc"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"`{text}` is not a version"):
        release(text)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ((0, 33), "0.33"),
        ((0,), "0"),
        ((0, 9, 2, -1, 1), "0.9.2.post1"),
        ((0, 9, -1, 0), "0.9.post0"),
        ((2 * 10**12 + 1, 5), "2!1.5"),
    ],
)
def test_a_key_is_written_as_its_version(key: Key, text: str) -> None:
    assert key_text(key) == text
    assert release(text).key == key


@pytest.mark.parametrize(
    ("key", "normalised"),
    [
        ((), (0,)),
        ((0,), (0,)),
        ((0, 0), (0,)),
        ((1, 0, 0), (1,)),
        ((0, 9, 0, -1, 0), (0, 9, -1, 0)),
        ((0, 0, -1, 2), (0, -1, 2)),
    ],
)
def test_trailing_zeros_order_nothing(key: Key, normalised: Key) -> None:
    assert normal(key) == normalised


numbers = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
version_texts = st.builds(
    lambda epoch, number, post: epoch + number + post,
    st.sampled_from(["", "", "", "1!"]),
    numbers,
    st.sampled_from(["", "", ".post0", ".post1"]),
)


@given(version_texts, version_texts)
def test_keys_order_as_pep_440_orders(one: str, other: str) -> None:
    assert (release(one).key < release(other).key) == (Version(one) < Version(other))
    assert (release(one).key == release(other).key) == (Version(one) == Version(other))


@given(version_texts)
def test_a_key_and_its_text_are_one(text: str) -> None:
    assert release(key_text(release(text).key)).key == release(text).key


clauses = st.builds(str.__add__, st.sampled_from([">=", "<", "=="]), version_texts)


# PEP 440 takes `<1` as "and no pre-release of 1"; releases alone are compared here.
@given(st.lists(clauses, min_size=1, max_size=3), version_texts)
def test_a_range_holds_what_pep_440_says(parts: list[str], text: str) -> None:
    inside = all(
        {
            ">=": Version(text) >= Version(part.lstrip("<>=")),
            "<": Version(text) < Version(part.lstrip("<>=")),
            "==": Version(text) == Version(part.lstrip("<>=")),
        }[part[: 1 if part[0] == "<" else 2]]
        for part in parts
    )
    assert (release(text).key in parse_range(",".join(parts))) == inside


def test_ranges_agree_with_the_packaging_library_on_plain_releases() -> None:
    texts = ["0.14.1", "0.27.9", "0.28", "0.28.0", "0.28.1", "0.33.0", "0.34"]
    for text in (">=0.14.1,<0.28", "==0.28", " >= 0.28 , <0.34", "<0.14.1"):
        assert [release(each).key in parse_range(text) for each in texts] == [
            Version(each) in SpecifierSet(text) for each in texts
        ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty clause in version range ``"),
        (">=0.3,", "empty clause in version range `>=0.3,`"),
        ("0.28", "version `0.28` has no operator: write `==0.28` or `>=0.28`"),
        ("<=0.28", "unknown operator `<=` in `<=0.28`: only `>=`, `<` and `==` are known"),
        (">0.28", "unknown operator `>` in `>0.28`: only `>=`, `<` and `==` are known"),
        ("~=0.28", "unknown operator `~=` in `~=0.28`: only `>=`, `<` and `==` are known"),
        ("==0.28.*", "wildcard in `==0.28.*`: write the range as `>=…,<…`"),
        (">=", "`` is not a version"),
        (">=0.x", "`0.x` is not a version"),
        (">=0.28rc1", "`0.28rc1` in `>=0.28rc1` is a build, not a release: write `0.28`"),
        ("==0.28+rocm", "`0.28+rocm` in `==0.28+rocm` is a build, not a release: write `0.28`"),
    ],
)
def test_what_is_no_range_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_range(text)


@pytest.mark.parametrize(
    ("releases", "text"),
    [
        (VersionSet.all(), "any"),
        (VersionSet.empty(), "none"),
        (parse_range(">=0.28,<0.31"), ">=0.28,<0.31"),
        (parse_range(">=0.28.0"), ">=0.28"),
        (parse_range("<0.28"), "<0.28"),
        (parse_range("==0.33.0"), "==0.33"),
        (VersionSet.all() - parse_range("==0.33"), "<0.33 or >0.33"),
        (parse_range("<0.3") | parse_range("==0.3"), "<=0.3"),
        (parse_range("<0.2") | parse_range(">=0.3,<0.4"), "<0.2 or >=0.3,<0.4"),
        (parse_range(">=0.3,<0.2"), "none"),
        (parse_range("<0"), "none"),
        (parse_range(">=0.0"), "any"),
        (parse_range("==0.9.2.post1"), "==0.9.2.post1"),
    ],
)
def test_a_set_of_releases_is_written_for_people(releases: VersionSet, text: str) -> None:
    assert str(releases) == text


def test_sets_know_whether_they_are_empty_or_one() -> None:
    assert parse_range(">=0.3,<0.2").is_empty
    assert parse_range("==0.3").is_singleton
    assert not parse_range(">=0.3").is_singleton
    assert not (parse_range("==0.3") | parse_range("==0.5")).is_singleton
    assert not VersionSet.empty().is_singleton
    assert parse_range(">=0.28,<0.31").witness() == (0, 28)
    assert "0.3" not in parse_range("==0.3")
    with pytest.raises(ValueError, match="an empty set has no member"):
        VersionSet.empty().witness()


KEYS = sorted(
    release(text).key
    for text in ("0", "0.1", "0.1.post0", "0.1.post1", "0.1.1", "0.2", "0.2.0.1", "0.3", "1", "1!0")
)
parts = st.one_of(
    st.sampled_from(KEYS).map(VersionSet.at_least),
    st.sampled_from(KEYS).map(VersionSet.below),
    st.sampled_from(KEYS).map(VersionSet.exactly),
    st.sampled_from([VersionSet.all(), VersionSet.empty()]),
)
version_sets = st.recursive(
    parts,
    lambda sets: st.tuples(st.sampled_from("&|-"), sets, sets).map(
        lambda made: {"&": made[1] & made[2], "|": made[1] | made[2], "-": made[1] - made[2]}[made[0]]
    ),
    max_leaves=5,
)


def members(releases: VersionSet) -> set[Key]:
    """All of KEYS and the keys around them that are in the set: every cut above is one of these."""
    around = [key for key in KEYS if -1 not in key]
    return {
        key
        for key in [
            *KEYS,
            *((*key, -1, 0) for key in around),
            *((*key, -1, 2) for key in KEYS if -1 not in key),
        ]
        if key in releases
    }


@given(version_sets, version_sets)
def test_set_operations_are_those_of_sets(one: VersionSet, two: VersionSet) -> None:
    assert members(one & two) == members(one) & members(two)
    assert members(one | two) == members(one) | members(two)
    assert members(one - two) == members(one) - members(two)
    assert (one <= two) == (members(one) <= members(two))
    assert one.isdisjoint(two) == members(one).isdisjoint(members(two))
    assert one.is_empty == (not members(one))
    assert (one == two) == (members(one) == members(two))
    assert one != two or hash(one) == hash(two)
    assert one.is_empty or one.witness() == min(members(one))


@given(version_sets)
def test_intervals_are_canonical_and_survive_pickling(releases: VersionSet) -> None:
    ends = [end for interval in releases.intervals for end in interval if end is not None]
    assert all(low < high for low, high in pairwise(ends))
    assert pickle.loads(pickle.dumps(releases)) == releases


def test_packaging_is_loaded_at_first_use_only() -> None:
    code = "import sys, moe_align.versions; print('packaging' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
