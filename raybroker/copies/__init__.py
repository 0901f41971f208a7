"""Copies of a host's log on disks and sockets: the shell of ``raybroker.replication``, which decides.

    copy          one copy: its machine, its folder and its links, in a thread of its own; the entry
    copy_status   what a copy says of itself and, where it leads, of the others
    replicated_store  the store of the host that runs where a copy leads
    copy_folder, copy_head, entry_form   what is on the disk
    links, link, message_form            what goes between copies
    images        files of a log that go to a copy which is too far behind; freed_space, which blocks are dead

What a host stores is copied: persistent messages, their acknowledgements, transactions, schedules and definitions, each
batch as an entry.  Messages that are not persistent and temporary destinations are in no store, and have no copies.
Bodies in pieces have files of their own, and are refused where the log has copies.

A copy is made for a folder, and is told by whoever places it (all methods in any thread, none waits for the network):

    copy = Copy(CopyPlace(folder, node, "broker/host"), secret, CopyEvents(...))   # StoreError, if it cannot be opened
    copy.serve() → (ip, port)      copy.id: of its disk; new for a folder that is new, was emptied or was cloned
    copy.know({id: (ip, port)})    where the others are; again whenever that changes
    copy.found(ids, min_in_sync)   once, when the log is made: these copies, all of them new, are its first voters
    copy.report() → CopyReport     for ``best_copy``: whom to tell to lead
    copy.lead()                    ask the others for their promise; CopyEvents says what came of it
    copy.change(change, id)        add, promote or remove a copy, where this one leads; CopyEvents says it
    copy.status() → CopyStatus     leader, term, and of each copy: index, entries behind, bytes, last answer, vote
    copy.shut_down()
"""
