"""The grammar of additive schemes: what is read is what Python's own arithmetic gives, and garbage is refused."""

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rankatlas import Mesh
from rankatlas.errors import InputError, SchemeError
from rankatlas.seeding.scheme import all_places, parse_scheme
from refusals import refused

MESH = Mesh(pp=3, dp=4, tp=2, ep2=2)
PLACES = {"base": 1000, "pp": 2, "dp": 3, "tp": 1, "ep2": 0}
names = st.sampled_from(["base", *MESH.axes])
space = st.sampled_from(["", "", " ", "  ", "\t", "\n"])


@st.composite
def written(draw, tree):
    """A tree as text: operators as words, parentheses where they are needed and sometimes where not, white space."""
    before, after = draw(space), draw(space)
    if isinstance(tree, int):
        text = draw(st.sampled_from([str(tree), f"00{tree}"]))
    elif isinstance(tree, str):
        text = tree
    else:
        operator, left, right = tree
        inner = [draw(written(side)) for side in (left, right)]
        if operator == "*":
            inner = [f"({text})" if is_sum(side) else text for side, text in zip((left, right), inner)]
        elif is_sum(right):  # a - (b - c)
            inner[1] = f"({inner[1]})"
        operator = draw(st.sampled_from("-−")) if operator == "-" else operator
        text = f"{inner[0]}{operator}{inner[1]}"
    if draw(st.integers(0, 4)) == 0:
        text = f"({before}{text}{after})"
    return f"{before}{text}{after}"


def is_sum(tree):
    return isinstance(tree, tuple) and tree[0] != "*"


def value(tree, places):
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return places[tree]
    left, right = (value(side, places) for side in tree[1:])
    return {"+": left + right, "-": left - right, "*": left * right}[tree[0]]


def named(tree):
    if isinstance(tree, tuple):
        return named(tree[1]) | named(tree[2])
    return {tree} if isinstance(tree, str) else set()


trees = st.recursive(
    st.one_of(st.integers(0, 10**6), names, names),
    lambda inner: st.tuples(st.sampled_from("+-*"), inner, inner),
    max_leaves=25,
)
expressions = trees.flatmap(lambda tree: st.tuples(st.just(tree), written(tree)))


def axes_named(tree):
    return tuple(axis for axis in MESH.axes if axis in named(tree))


@given(expressions)
def test_an_expression_means_what_its_tree_means(pair):
    tree, text = pair
    (family,) = parse_scheme(text, MESH)
    assert (family.name, family.axes) == ("", axes_named(tree))
    for places in (PLACES, dict.fromkeys(PLACES, 0), {**PLACES, "base": 2**63, "dp": 0}):
        assert family.seed(places) == value(tree, places)


@given(expressions, expressions, expressions)
def test_families(first, second, third):
    text = f"{first[1]};b={second[1]}; c =+{third[1]}"
    families = parse_scheme(text, MESH)
    assert [family.name for family in families] == ["", "b", "c"]
    values = [family.seed(PLACES) for family in families]
    trees = [first[0], second[0], ("+", first[0], third[0])]  # a leading + adds the family without a name
    assert values == [value(tree, PLACES) for tree in trees]
    assert [family.axes for family in families] == [axes_named(tree) for tree in trees]


@given(expressions)
def test_a_leading_plus_adds_base_where_no_family_is_without_a_name(pair):
    tree, text = pair
    for families in (parse_scheme(f"+{text}", MESH), parse_scheme(f"a=1; b=+{text}", MESH)):
        assert families[-1].seed(PLACES) == PLACES["base"] + value(tree, PLACES)
        assert families[-1].axes == axes_named(tree)


def test_axes_of_all_families_are_in_mesh_order():
    families = parse_scheme("base+tp; x=+dp+pp; y=ep2*dp", MESH)
    assert [family.axes for family in families] == [("tp",), ("pp", "dp", "tp"), ("dp", "ep2")]
    assert repr(families[1]) == "Family('x', axes=('pp', 'dp', 'tp'))"


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "a number or one of base, pp"),
        ("base+", 5, "is missing"),
        ("base+100*", 9, "is missing"),
        ("base 100", 5, "'1' does not belong here"),
        ("base+100*(pp", 12, "')' is missing"),
        ("base+100*pp)", 11, "')' does not belong"),
        ("()", 1, "is missing"),
        ("base+100*pq", 9, "'pq' is no axis of pp=3 dp=4"),
        ("base++pp", 5, "is missing"),
        ("base-−pp", 5, "is missing"),
        ("-5", 0, "is missing"),
        ("base/2", 4, "'/' does not belong"),
        ("base**2", 5, "is missing"),
        ("base+1.5", 6, "'.' does not belong"),
        ("base+1e3", 5, "'1e3' is no axis"),
        ("base+1_000", 5, "'1_000' is no axis"),
        ("base+0x10", 5, "'0x10' is no axis"),
        ("base+٣", 5, "is missing"),
        ("base+１", 5, "is missing"),
        ("base+ｐｐ", 5, "is missing"),
        ("base+pp.real", 7, "'.' does not belong"),
        ("__import__('os')", 0, "'__import__' is no axis"),
        ("a=b=1", 2, "'b' is no axis"),
        ("a=1=1", 3, "'=' does not belong"),
        ("=1", 0, "'' cannot name a family"),
        ("2a=1", 0, "'2a' cannot name a family"),
        ("é=1", 0, "cannot name a family"),
        ("a b=1", 0, "'a b' cannot name a family"),
        ("base;;", 5, "no name"),
        (";base", 0, "is missing"),
        ("base;pp", 5, "only one family may have no name"),
        ("a=1;a=2", 4, "'a' stands twice"),
        ("a=1;base", 4, "stands first"),
        ("base;b=", 7, "is missing"),
        ("base+" + "9" * 21, 5, "that many digits"),
    ],
)
def test_errors_point_at_the_character(text, position, words):
    with refused(SchemeError, words, text=text, position=position):
        parse_scheme(text, MESH)
    with pytest.raises(SchemeError) as caught:
        parse_scheme(text, MESH)
    shown, caret, *complaint = str(caught.value).splitlines()
    assert caret.strip() == "^"
    assert len(complaint) == 1
    assert shown == text if len(text) < 60 else shown.startswith("base+")
    assert caret.index("^") == position


def test_numbers_have_at_most_twenty_digits_but_products_may_have_more():
    (family,) = parse_scheme("*".join(["99999999999999999999"] * 30), MESH)
    assert family.seed(PLACES) == 99999999999999999999**30


def test_parentheses_have_a_floor():
    deep = "(" * 50 + "pp" + ")" * 50
    assert parse_scheme(deep, MESH)[0].seed(PLACES) == 2
    for depth in (60, 100_000):
        with refused(SchemeError, "more than 50 parentheses"):
            parse_scheme("(" * depth + "pp" + ")" * depth, MESH)
        with refused(SchemeError, "more than 50 parentheses"):
            parse_scheme("(" * depth, MESH)


def test_long_sums_and_products_are_no_matter():
    (family,) = parse_scheme("base" + "+pp*1" * 20_000, MESH)
    assert family.seed(PLACES) == 1000 + 2 * 20_000
    (family,) = parse_scheme("+".join(f"({n}*(dp-1))" for n in range(3000)), MESH)
    assert family.seed(PLACES) == 2 * sum(range(3000))
    assert len(parse_scheme(";".join(f"f{n}=+{n}" for n in range(2000)), MESH)) == 2000


@given(
    st.one_of(
        st.text(max_size=60),
        st.text("()+-*−;= \t\nbasepdt0123459", max_size=60),
        st.lists(
            st.sampled_from(["base", "pp", "dp", "(", ")", "+", "-", "*", ";", "=", "x=", "7", " "]), max_size=30
        ).map("".join),
    )
)
@example("\x00")
@example("\ud800")
@example("a=\u2028+base")
@example("base+" * 2000)
def test_garbage_brings_nothing_but_a_scheme_error(text):
    for family in read_or_refused(text):
        assert isinstance(family.seed(PLACES), int)
        assert set(family.axes) <= set(MESH.axes)


def read_or_refused(text):
    families = []
    with suppress(SchemeError):
        families = parse_scheme(text, MESH)
    if not families:
        with pytest.raises(SchemeError) as caught:
            parse_scheme(text, MESH)
        assert caught.value.text == text
        assert 0 <= caught.value.position <= len(text)
        assert len(str(caught.value).splitlines()) == 3
    return families


def test_what_is_no_text_and_an_axis_called_base():
    for bad in (None, 5, b"base", ["base"]):
        with refused(SchemeError, "is text", type(bad).__name__):
            parse_scheme(bad, MESH)
    with refused(SchemeError, "'base'"):
        parse_scheme("base", Mesh(base=4))


def test_a_name_may_be_that_of_an_axis_or_base():
    """A name before '=' is a family's, whatever axes there are."""
    families = parse_scheme("pp=+pp; base=base+7; tp2=tp", MESH)
    assert [(family.name, family.seed(PLACES)) for family in families] == [("pp", 1002), ("base", 1007), ("tp2", 1)]


@given(st.lists(st.sampled_from(MESH.axes), unique=True), st.integers(0, 2**64 - 1))
def test_all_places_are_all_places(axes, base):
    axes = tuple(axis for axis in MESH.axes if axis in axes)
    found = list(all_places(MESH, axes, base))
    expected = 1
    for axis in axes:
        expected *= MESH.size(axis)
    assert len(found) == len({tuple(places.items()) for places in found}) == expected
    assert all(list(places) == ["base", *axes] and places["base"] == base for places in found)
    assert all(0 <= places[axis] < MESH.size(axis) for places in found for axis in axes)


def test_a_scheme_error_is_an_input_error():
    assert issubclass(SchemeError, InputError)
    assert issubclass(SchemeError, ValueError)
