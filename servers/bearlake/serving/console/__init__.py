"""The console: a web page for people, and a thin server between the page and the public APIs (decision 234).

| path | |
|---|---|
| `GET /` | the page; `static/` has its parts, as the browser runs them |
| `GET /static/{name}` | one of these parts |
| `GET /api/console` | the version, and which APIs there are |
| `/api/{admin,rest,registry,pulsar,catalog}/…` | the request goes to that API as it is, with the caller's own login |

The server has no rights of its own and keeps no login: the APIs decide about each request.
"""
