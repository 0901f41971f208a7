"""What destinations take from their template."""

from __future__ import annotations

from raybroker.model.definitions.template import applied, follows, of_type


def test_a_destination_takes_what_it_is_not_given_itself() -> None:
    template = {"maxNumMsgs": 5, "useDMQ": False, "sharedConsumerFlowLimit": 2, "expirationPolicy": "Discard"}
    assert applied(template, {"maxNumMsgs": 7}, "queue") == {
        "maxNumMsgs": 7,
        "useDMQ": False,
        "expirationPolicy": "Discard",
    }
    assert applied(template, {"expirationPolicy": "Default"}, "topic")["expirationPolicy"] == "Discard"
    assert applied({}, {"expirationPolicy": "Default"}, "topic") == {"expirationPolicy": "Default"}
    assert of_type(template, "topic")["sharedConsumerFlowLimit"] == 2


def test_a_destination_follows_as_long_as_it_has_the_old_value() -> None:
    assert follows({"maxNumMsgs": 5}, {"maxNumMsgs": 5}, "maxNumMsgs", 6)
    assert follows({"maxNumMsgs": -1}, {}, "maxNumMsgs", 6)
    assert not follows({"maxNumMsgs": 4}, {"maxNumMsgs": 5}, "maxNumMsgs", 6)
    assert not follows({"maxNumMsgs": 6}, {"maxNumMsgs": 6}, "maxNumMsgs", 6)
    assert not follows({"hosting": "dedicated"}, {}, "hosting", "shared")
