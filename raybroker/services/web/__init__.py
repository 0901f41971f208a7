"""The web part that all services over HTTP share, whatever they serve.

    problems      errors as HTTP says them (problem+json)
    credentials   who asks: a user's password, or a token, each proved to the broker
    users         the connections to the broker of those who ask
    routes        path and method → what answers
    bodies        bodies of requests, with their bounds
    json_text     JSON in and out: one model checks, and describes
    operations    the table of operations, and its OpenAPI description
    application   the ASGI application: takes a request to its operation, and what comes of it to an answer

May import what ``services`` may, and none of the services: :mod:`raybroker.services.rest` carries messages,
:mod:`raybroker.services.administration` administrative verbs.
"""
