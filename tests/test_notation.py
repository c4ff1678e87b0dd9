"""The notation: what is read, and a caret under the very character that cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankatlas import Atlas, Mesh, parse_atlas, parse_layout, parse_mesh
from rankatlas.errors import InputError, IntegerError, NotationError, WorldSizeError
from refusals import refused
from strategies import meshes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dp=8", Mesh(dp=8)),
        ("pp=4 dp=2 tp=8", Mesh(pp=4, dp=2, tp=8)),
        ("  pp=4\tdp=2\n\ntp=8  ", Mesh(pp=4, dp=2, tp=8)),
        ("dp=8 first_rank=16", Mesh(dp=8, first_rank=16)),
        ("first_rank=16 dp=8", Mesh(dp=8, first_rank=16)),
        ("dp=8 first_rank=0", Mesh(dp=8)),
        ("lambda=2 _=3 A1=1", Mesh.from_axes([("lambda", 2), ("_", 3), ("A1", 1)])),
        (f"dp={2**40}", Mesh(dp=2**40)),
    ],
)
def test_what_is_read(text, expected):
    assert parse_mesh(text) == parse_layout(text) == expected
    assert parse_mesh(text, world_size=expected.world_size) == expected


@pytest.mark.parametrize("mark", ["?", "-1"])
def test_an_open_size_follows_from_the_world(mark):
    assert parse_mesh(f"pp=4 dp={mark} tp=8", world_size=64) == Mesh(pp=4, dp=2, tp=8)
    assert parse_mesh(f"dp={mark}", 7) == Mesh(dp=7)
    assert parse_mesh(f"dp={mark} tp=8", 8) == Mesh(dp=1, tp=8)
    assert parse_mesh(f"dp={mark} first_rank=3", 2**40) == Mesh(dp=2**40, first_rank=3)


@given(meshes, st.data())
def test_any_one_size_may_be_left_open(mesh, data):
    opened = data.draw(st.sampled_from(mesh.axes))
    items = [f"{axis}={'?' if axis == opened else size}" for axis, size in zip(mesh.axes, mesh.sizes)]
    space = data.draw(st.sampled_from([" ", "  ", "\t", "\n", " \r\n "]))
    text = space.join([*items, f"first_rank={mesh.first_rank}"])
    assert parse_mesh(text, mesh.world_size) == mesh


BAD = [
    # text, offset of the offending character, words
    ("", 0, "at least one axis"),
    ("   ", 3, "at least one axis"),
    ("first_rank=3", 12, "at least one axis"),
    ("dp", 2, "'=' and a size must follow 'dp'"),
    ("dp =8", 2, "'='"),
    ("dp= 8", 3, "none is given"),
    ("dp=", 3, "none is given"),
    ("=8", 0, "an axis name must stand before '='"),
    ("dp=2 =8", 5, "an axis name must stand before '='"),
    ("dp=2 tp=x", 8, "positive integer"),
    ("dp=2 tp=4x", 9, "positive integer"),
    ("dp=2.0", 4, "positive integer"),
    ("dp=2_0", 4, "positive integer"),
    ("dp=+2", 3, "positive integer"),
    ("dp=0x8", 4, "positive integer"),
    ("dp=1e3", 4, "positive integer"),
    ("dp=٣", 3, "positive integer"),
    ("dp=²", 3, "positive integer"),
    ("dp=\uff18", 3, "positive integer"),
    ("dp=0", 3, "positive integer"),
    ("dp=00", 3, "positive integer"),
    ("dp=-2", 3, "positive integer"),
    ("dp=--1", 3, "positive integer"),
    ("dp=??", 3, "positive integer"),
    ("dp=2=3", 4, "positive integer"),
    ("dp=True", 3, "positive integer"),
    ("dp=2,tp=4", 4, "commas"),
    ("dp=2, tp=4", 4, "commas"),
    ("dp=2 , tp=4", 5, "commas"),
    ("dp,tp=4", 2, "commas"),
    ("dp=2;tp=4", 4, ";"),
    ("1dp=2", 0, "'1'"),
    ("d-p=2", 1, "'-'"),
    ("d.p=2", 1, "'.'"),
    ("größe=2", 2, "'ö'"),
    ("dp=2 日=2", 5, "'日'"),
    ("(dp=2)", 0, "'('"),
    ("dp=2 tp=4 dp=2", 10, "'dp' stands twice"),
    ("dp=? tp=?", 8, "only one size"),
    ("dp=-1 tp=?", 9, "only one size"),
    ("dp=-1 tp=-1", 9, "only one size"),
    ("dp=2 first_rank=-1", 16, "first_rank"),
    ("dp=2 first_rank=?", 16, "first_rank"),
    ("dp=2 first_rank=x", 16, "first_rank"),
    ("dp=2 first_rank=", 16, "first_rank"),
    ("dp=2 first_rank=1 first_rank=1", 18, "first_rank stands twice"),
    ("dp=" + "9" * 5000, 3, "64 bits"),
    ("dp=2\x00tp=2", 4, "positive integer"),
]


@pytest.mark.parametrize(("text", "position", "words"), BAD, ids=lambda value: repr(value)[:30])
@pytest.mark.parametrize("world_size", [None, 8])
def test_the_caret_points_at_the_offending_character(text, position, words, world_size):
    with refused(NotationError, words, text=text, position=position):
        parse_mesh(text, world_size)
    with pytest.raises(NotationError) as caught:
        parse_layout(text, world_size)
    shown, caret, *_ = str(caught.value).split("\n")
    column = caret.index("^")
    assert caret.strip() == "^"
    assert shown[column : column + 1] == text[position : position + 1].replace("\x00", " ")


def test_an_open_size_without_a_world_points_at_the_question_mark():
    with refused(NotationError, "world size", text="pp=2 dp=? tp=2", position=8):
        parse_mesh("pp=2 dp=? tp=2")


@given(st.text(alphabet="adp=?-10 \t;:,_\n\x1b日", max_size=40), st.none() | st.integers(1, 64))
def test_any_text_is_a_layout_or_an_input_error(text, world_size):
    for parse in (parse_mesh, parse_layout):
        try:
            found = parse(text, world_size)
        except InputError as error:
            position = getattr(error, "position", 0)  # only a NotationError has one
            ok = str(error) and 0 <= position <= len(text) and getattr(error, "text", text) == text
        else:
            ok = True
            assert parse(str(found)) == found
            assert world_size in (None, found.world_size)
        assert ok


@given(st.text(max_size=200))
def test_a_message_never_holds_control_characters(text):
    with pytest.raises(InputError) as caught:
        parse_mesh(text + " =")
    assert all(char.isprintable() or char == "\n" for char in str(caught.value))


def test_long_texts_are_shown_around_the_place_only():
    text = " ".join(f"a{place}=1" for place in range(900)) + " b=x " + " ".join(f"c{place}=1" for place in range(900))
    with pytest.raises(NotationError) as caught:
        parse_mesh(text)
    shown, caret, complaint = str(caught.value).split("\n")
    assert len(shown) < 80
    assert (shown[caret.index("^")], shown[:3], shown[-3:], complaint[:4]) == ("x", "...", "...", "size")


@pytest.mark.parametrize("text", [None, 8, b"dp=8", ["dp=8"], {"dp": 8}, Mesh(dp=8)])
def test_what_is_no_text(text):
    for parse in (parse_mesh, parse_layout, parse_atlas):
        with pytest.raises(InputError, match=type(text).__name__):
            parse(text)


def test_a_world_that_does_not_fit():
    with refused(WorldSizeError, "dp=2", "tp=4", "8", "16", product=8, world_size=16):
        parse_mesh("dp=2 tp=4", 16)
    with refused(WorldSizeError, "tp=3", "remainder of 1", product=3, world_size=16, nearest_worlds=[15, 18]):
        parse_mesh("dp=? tp=3", 16)


@pytest.mark.parametrize("world_size", [True, 8.0, "8", 0, -8])
def test_a_world_size_that_is_none(world_size):
    for text in ("dp=8", "dp=?"):
        with pytest.raises(InputError, match="world size"):
            parse_mesh(text, world_size)


# atlases

DENSE, EXPERT = Mesh(pp=2, dp=4, tp=2), Mesh(pp=2, edp=2, ep=4)


@pytest.mark.parametrize(
    "text",
    [
        "dense: pp=2 dp=4 tp=2; expert: pp=2 edp=2 ep=4; shared: pp",
        "dense:pp=2 dp=4 tp=2;expert:pp=2 edp=2 ep=4;shared:pp",
        "\n dense :\n pp=2 dp=4 tp=2\n; expert: pp=2 edp=2 ep=4 ;shared: pp ",
        "shared: pp; dense: pp=2 dp=4 tp=2; expert: pp=2 edp=2 ep=4",
    ],
)
def test_an_atlas_is_read(text):
    assert parse_atlas(text) == parse_layout(text) == Atlas(dense=DENSE, expert=EXPERT, shared=("pp",))
    assert parse_layout(text, 16) == Atlas(dense=DENSE, expert=EXPERT, shared=("pp",))


def test_a_chart_may_lie_elsewhere():
    atlas = parse_atlas("train: dp=64; rollout: tp=2 dp=4 first_rank=64")
    assert atlas == Atlas(train=Mesh(dp=64), rollout=Mesh(tp=2, dp=4, first_rank=64))
    assert parse_layout(str(atlas), 72) == atlas


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("dense: pp=2; expert pp=2", 13, "name: axis=size"),
        ("dense: pp=2;;", 12, "name: axis=size"),
        ("dense: pp=2; shared: dp", 21, "no chart has the axis"),
        ("dense: pp=2 dp=2; shared: pp, dp", 28, "not by commas"),
        ("dense: pp=2; : pp=2", 13, "cannot name a chart"),
        ("dense: pp=2; 1x: pp=2", 13, "'1x'"),
        ("dense: pp=2; a b: pp=2", 13, "'a b'"),
        ("dense: pp=2; dense: pp=2", 13, "'dense' stands twice"),
        ("dense: pp=2; shared: pp; shared: pp", 25, "'shared' stands twice"),
        ("dense: pp=2; expert: pp=x", 24, "positive integer"),
        ("dense: pp=2; expert: ", 21, "at least one axis"),
        ("dense: pp=2; expert: pp=?", 24, "world size"),
        ("dense: pp=2; shared:", 20, "axis names"),
        ("größe: pp=2", 0, "cannot name a chart"),
        ("a: b: dp=2", 4, "':'"),
    ],
)
def test_the_caret_of_an_atlas(text, position, words):
    for parse in (parse_atlas, parse_layout):
        with refused(NotationError, words, text=text, position=position):
            parse(text)


def test_an_atlas_and_a_world_that_is_not_its_own():
    with refused(InputError, "16", "32"):
        parse_layout("dense: pp=2 dp=4 tp=2", 32)
    with refused(IntegerError, "world size", "True"):
        parse_layout("dense: pp=2 dp=4 tp=2", True)


def test_only_shared_axes_make_no_atlas():
    with pytest.raises(InputError):
        parse_atlas("shared: pp")
