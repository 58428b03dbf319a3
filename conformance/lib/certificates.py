"""Certificates of clients, which the authority that a node made signs."""

import subprocess


def client_certificate(node, user):
    """Files of a certificate of a user, and of its key."""
    key, request, certificate, about = (node.home / f"{user}.{end}" for end in ("key", "csr", "pem", "ext"))
    authority = node.data / "tls"
    about.write_text("extendedKeyUsage=clientAuth\n")
    openssl(
        "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", key, "-out", request, "-subj", f"/CN={user}",
    )  # fmt: skip
    openssl(
        "x509", "-req", "-in", request, "-CA", authority / "ca.pem", "-CAkey", authority / "ca-key.pem",
        "-set_serial", "1", "-days", "2", "-extfile", about, "-out", certificate,
    )  # fmt: skip
    return str(certificate), str(key)


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
