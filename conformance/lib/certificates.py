"""Certificates of clients."""

import subprocess


def client_certificate(node, user):
    """Files of a certificate of a user, and of its key; the authority that the node made signs it."""
    tls = node.data / "tls"
    return Authority(node.home, tls / "ca.pem", tls / "ca-key.pem").sign(user)


class Authority:
    """What signs certificates, and revokes them; its files lie in a directory."""

    def __init__(self, home, certificate, key):
        self.home, self.certificate, self.key = home, certificate, key

    @classmethod
    def made(cls, home):
        """One of its own."""
        certificate, key = home / "authority.pem", home / "authority.key"
        openssl("req", "-x509", *new_key(key), "-out", certificate, "-days", "2", "-subj", "/CN=an authority")
        return cls(home, certificate, key)

    def sign(self, user, serial=1, extension="extendedKeyUsage=clientAuth", days=2):
        """Files of a certificate of a user, or of what the extension says, and of its key. With 0 days it expires at once."""
        key, request, certificate, about = (self.home / f"{user}.{end}" for end in ("key", "csr", "pem", "ext"))
        about.write_text(f"{extension}\n")
        openssl("req", "-new", *new_key(key), "-out", request, "-subj", f"/CN={user}")
        openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key,
            "-set_serial", serial, "-days", days, "-extfile", about, "-out", certificate,
        )  # fmt: skip
        return str(certificate), str(key)

    def revoke(self, *certificates):
        """Its list of revoked certificates: these are the first ones in it, or the next ones."""
        settings, database, number, revoked = (self.home / f"revoked.{end}" for end in ("conf", "txt", "number", "pem"))
        if not settings.exists():
            database.touch()
            number.write_text("01\n")
            settings.write_text(
                f"[ca]\ndefault_ca = this\n[this]\ndatabase = {database}\ncrlnumber = {number}\n"
                "default_md = sha256\ndefault_crl_days = 2\ncrl_extensions = crl\n"
                "[crl]\nauthorityKeyIdentifier = keyid\n"
            )
        signer = ("ca", "-config", settings, "-cert", self.certificate, "-keyfile", self.key)
        for certificate in certificates:
            openssl(*signer, "-revoke", certificate)
        openssl(*signer, "-gencrl", "-out", revoked)
        return revoked.read_text()


def new_key(path):
    return "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
