"""The command lines of Sun Java System Message Queue and Interstage: imqcmd, imqbrokerd, imqusermgr and so on.

Each program is read by its own table of forms and options, and becomes a command of ``raybroker``, which carries it
out: nothing is done here that has no command of its own. What cannot be is refused with the reason and the way to do it
here. Enter at :mod:`raybroker.cli.mq.programs`.
"""
