"""ssl over goroutines, patched and not."""

import os
import subprocess

import pytest
from patched import run


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    directory = tmp_path_factory.mktemp("certificate")
    key, cert = directory / "key.pem", directory / "cert.pem"
    try:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert],
            check=True, capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError) as e:
        pytest.skip("no certificate: openssl: %s" % e)
    return cert, key


CODE = """
    import os, sys, time
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(sys.argv[1], sys.argv[2])
    client_context = ssl.create_default_context(cafile=sys.argv[1])
    listener = socket.create_server(("127.0.0.1", 0))
    def serve(client):
        gosched.sleep(0.02)
        with server_context.wrap_socket(client, server_side=True) as s:
            while data := s.recv(1 << 16):
                s.sendall(data)
    def accept():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            gosched.go(serve, client)
    gosched.go(accept)
    big = os.urandom(3_000_000)
    def client(i):
        with socket.create_connection(listener.getsockname()) as plain:
            with client_context.wrap_socket(plain, server_hostname="localhost") as s:
                assert s.gettimeout() is None
                sender = gosched.go(s.sendall, big)
                got = bytearray()
                while len(got) < len(big):
                    got += s.recv(1 << 16)
                sender.join()
                assert got == big
                s.settimeout(0.03)
                try:
                    s.recv(1)
                except socket.timeout as e:
                    assert str(e) == "The read operation timed out", e
                else:
                    assert False
                s.setblocking(False)
                try:
                    s.recv(1)
                except ssl.SSLWantReadError:
                    pass
                else:
                    assert False
                return 1
    clients = [gosched.go(client, i) for i in range(8)]
    assert sum(c.result() for c in clients) == 8
    listener.close()
    # A server that says nothing: the handshake times out.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with socket.create_connection(silent.getsockname(), timeout=0.05) as plain:
            try:
                client_context.wrap_socket(plain, server_hostname="localhost")
            except socket.timeout as e:
                assert "handshake operation timed out" in str(e), e
            else:
                assert False
"""


def test_patched(certificate):
    run("import socket, ssl\n" + "import textwrap; exec(textwrap.dedent('''%s'''))" % CODE, *certificate)


def test_patched_after_import(certificate):
    run(
        "import ssl, socket\nclass Context(ssl.SSLContext): pass\n"
        "import gosched; from gosched import patch; patch.patch_all()\n"
        "import textwrap; exec(textwrap.dedent('''%s'''))" % CODE,
        *certificate, prelude="",
    )


def test_unpatched(certificate):
    run(
        "import gosched\nfrom gosched import socket, ssl\nimport textwrap; exec(textwrap.dedent('''%s'''))" % CODE,
        *certificate, prelude="",
    )
