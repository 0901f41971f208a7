"""Clients of AMQP 1.0 that nobody here wrote, against the service ``amqp``: each one is a program in its own language.

    java/          Qpid JMS: JORAM's tests of JMS (``joram``), a list of cases of our own (``cases``), compiled from one
                   source for javax.jms and for jakarta.jms, load while brokers are killed (``kills``), objects that
                   are looked up (``lookup``), a broker of a cluster that ends (``elsewhere``), throughput (``speed``),
                   and the reference, which is another broker, embedded (``reference``)
    clients/       Qpid Proton in Python, rhea in JavaScript, go-amqp in Go
    building.py    fetches and compiles what they need, into a folder outside the checkout
    server.py      the broker that they speak to, raybroker or the reference, as a process of its own
    programs.py    runs one of them: each prints a line of JSON for each case
    kills.py       kills the broker under load, and counts

``python -m tests.amqp_clients`` runs any of them against either broker. A case that fails against the reference too is
looked at first: it is in ``programs.KNOWN`` when the specification of JMS says so, and wrong otherwise.
"""
