"""Destinations whose log has copies at several brokers: where those are, who leads, and what that means for one broker.

    placed_log        what the configuration change record says of one log
    copy_port         what a copy, and whoever makes copies, is to a broker
    own_copy          this broker's copy of one log, and what the others say of theirs
    copied_logs       all of them: looks at them, has one lead, and serves what is led here; enter there
    placing           makes copies for a new destination

Such a destination is in one place of the cluster, where its log is led.  It imports :mod:`raybroker.cluster` and
:mod:`raybroker.hosting`.
"""
