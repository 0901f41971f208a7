"""The console: pages for a browser, served by the services ``httpadmin`` and ``httpsadmin`` at ``/console/``.

    sessions      who has logged in: bounded in number and in time
    static_files  the files of the pages, read once at the start, with what browsers are told of them
    figures       what destinations hold and how fast, asked for while somebody looks
    history       the same of the last hour, sampled all the time
    console       requests below /console/: files, login, verbs and views
    static/       the pages: modules of JavaScript without a build step, and libraries in vendor/ with their licences

A page asks for nothing that administration over HTTP does not have: ``/console/api/PATH`` is ``/PATH`` for the user of
the session, with the rights that this user has.  Besides there are views, ``/console/view/NAME``, so that a browser
need not load all attributes of a thousand destinations to show fifty, and knows which buttons would be refused now.
"""
