"""Builds the authenticator of a process: its users, keys of tokens, and threads that check passwords."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

from bearlake.metadata import Metadata
from bearlake.serving.authentication.authenticator import Authenticator
from bearlake.serving.authentication.issuer import signing_keys
from bearlake.serving.authentication.settings import AuthenticationSettings
from bearlake.serving.authentication.tokens import Tokens
from bearlake.serving.authentication.users import StoredUsers
from bearlake.streams.audit import Audit

PASSWORD_THREADS = 2
"""Threads that check passwords. The rest of the process has the other cores."""


def build_authenticator(
    settings: AuthenticationSettings, metadata: Metadata, closing: AsyncExitStack, audit: Audit | None = None
) -> Authenticator:
    """Return an authenticator, which `closing` closes; `audit` notes refused logins.

    Raises `Invalid` for a malformed rule or URL in the settings.
    """
    executor = ThreadPoolExecutor(PASSWORD_THREADS, thread_name_prefix="passwords")
    closing.callback(executor.shutdown, wait=False, cancel_futures=True)
    keys = signing_keys(settings.token)
    closing.push_async_callback(keys.close)
    return Authenticator(settings, StoredUsers(metadata.users), Tokens(settings.token, keys), executor, audit)
