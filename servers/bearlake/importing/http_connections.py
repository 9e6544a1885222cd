"""Connections of `urllib` whose peer is checked by `Reach` before a request is sent: also if a redirect names it."""

from collections.abc import Callable
from functools import partial
from http.client import HTTPResponse, HTTPSConnection
from typing import Any
from urllib.request import HTTPHandler, HTTPSHandler, Request

from typing_extensions import override

from bearlake.http_answers import InTime


class _Checked(InTime):
    def __init__(self, *given: Any, check: Callable[[str], None], **named: Any) -> None:
        super().__init__(*given, **named)
        self._check = check

    @override
    def connect(self) -> None:
        super().connect()
        try:
            self._check(self.sock.getpeername()[0])
        except BaseException:
            self.close()
            raise


class _CheckedTls(_Checked, HTTPSConnection):
    pass


class HttpHandler(HTTPHandler):
    """Opens `http://` for requests that `Redirects.of` has returned; their `ends_at` is when the answer ends (`InTime`)."""

    @override
    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_checked(_Checked, req), req)


class HttpsHandler(HTTPSHandler):
    """The same for `https://`. The certificate is verified before the check, and the request is sent after it."""

    @override
    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_checked(_CheckedTls, req), req, context=self._context)  # type: ignore[attr-defined]


def _checked(kind: type[_Checked], request: Request) -> Any:  # typeshed wants a class
    check, ends_at = request.reach.check_next, request.ends_at  # type: ignore[attr-defined]
    return partial(kind, check=check, ends_at=ends_at)
