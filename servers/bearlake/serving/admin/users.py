"""Users over HTTP: their names and mechanisms. Passwords are set by the command line or by Kafka's clients, never here."""

from aiohttp import web

from bearlake.metadata.users import UserStore
from bearlake.serving.admin import models


class UserRoutes:
    """The handler of `GET /v1/users`."""

    def __init__(self, users: UserStore) -> None:
        self._users = users

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handler."""
        router.add_get("/v1/users", self.list)

    async def list(self, request: web.Request) -> web.Response:
        """List the users who may log in by a password, by name, one page, with the mechanism and the rounds of each credential.

        `next` is the `after` of the next page, null on the last page.
        """
        page = models.USER_PAGE.read(request)
        found = await self._users.list(after=page.after, limit=page.limit)
        shown = [
            {
                "name": user.name,
                "credentials": [
                    {"mechanism": credential.mechanism, "iterations": credential.iterations}
                    for credential in user.credentials
                ],
            }
            for user in found
        ]
        return web.json_response({"users": shown, "next": found[-1].name if len(found) == page.limit else None})
