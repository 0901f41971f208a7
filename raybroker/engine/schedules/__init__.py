"""Recurring schedules: messages that are sent again and again, by the calendar or the clock.

It imports the core and the path of commands; cronsim computes the times of cron expressions. Enter at
:mod:`raybroker.engine.schedules.schedules`.
"""
