"""The WSGI application that wrk asks."""

BODY = b"Hello, World!\n"


def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))])
    return [BODY]
