"""Layouts that worked and were published: none may have an error, and nearly all nothing at all."""

from published import POINTS, checked, summary


def test_no_published_layout_has_an_error():
    wrong = {
        point["id"]: [finding.message for finding in findings if finding.severity == "error"]
        for point, findings in checked()
    }
    assert {name: messages for name, messages in wrong.items() if messages} == {}


def test_what_is_found_is_known():
    """Counted, so that a check that begins to complain about working layouts is seen."""
    told = summary()
    assert (told["points"], told["checked"]) == (len(POINTS), 350)
    assert told["found"] == {
        ("note", "RA133"): 1,  # one micro-batch on two stages
        ("note", "RA191"): 3,  # gloo groups of 1,120 ranks and more
        ("warning", "RA172"): 1,  # tp=16 on nodes of 8
    }
    assert told["clean"] == 345
