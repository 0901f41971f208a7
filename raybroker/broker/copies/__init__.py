"""Destinations whose log has copies at several brokers: where those are, who leads, and what that means for one broker.

    placed_log        what the configuration change record says of one log
    copy_port         what a copy, and whoever makes copies, is to a broker
    own_copy          this broker's copy of one log, and what the others say of theirs
    leader_watch      waits for the end of a leader
    copied_logs       all of them: looks at them, has one lead, and serves what is led here; enter there
    completing        one step towards the copies that there are to be, where the log is led
    placing           makes copies for a new destination, and has more, fewer or others made
    member_moves      moves what a destination without copies stores into such a log
    lost_leaders      has other copies lead at once, by an administrator's word

Such a destination is in one place of the cluster, where its log is led.  It imports :mod:`raybroker.cluster` and
:mod:`raybroker.hosting`.
"""
