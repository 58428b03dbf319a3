"""HTTP management of buckets, scopes and collections, without an SDK."""

import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from http.client import HTTPException

BUCKET = "/pools/default/buckets/default/scopes"


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect."""

    def redirect_request(self, *_):
        return None


def asked(node, method, path, **form):
    """Status, headers and body of a request below the scopes of the bucket."""
    return call(node, method, BUCKET + path, **form)


def call(node, method, path, body=None, **form):
    """Status, headers and body of a request with a body, or with a form."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.ports['http']}{path}",
        method=method,
        data=urllib.parse.urlencode(form).encode() if form else body,
        headers={"Authorization": "Basic " + b64encode(b"Administrator:password").decode()},
    )
    try:
        with urllib.request.build_opener(_Stay).open(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.headers, refused.read().decode()
    except HTTPException as broken:
        raise ConnectionError(str(broken)) from None


def must(node, method, path, **form):
    """The body of a management request that must succeed."""
    status, _, body = call(node, method, path, **form)
    if status not in (200, 202):
        raise AssertionError(f"{method} {path} {form}: {status} {body}")
    return body


def manage(node, method, path, **form):
    """The body of a request below the scopes that must succeed."""
    status, _, body = asked(node, method, path, **form)
    if status != 200:
        raise AssertionError(f"{method} {path} {form}: {status} {body}")
    return body
