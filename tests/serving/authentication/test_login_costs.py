"""The login of an unknown user costs the server what a wrong password of a known user costs, so its time tells nothing."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from typing_extensions import override

from bearlake.errors import Denied
from bearlake.metadata.open import open_metadata
from bearlake.metadata.users import CredentialChange, ScramCredential
from bearlake.serving.authentication.authenticator import Authenticator
from bearlake.serving.authentication.credentials import create_credential
from bearlake.serving.authentication.peer import Peer
from bearlake.serving.authentication.settings import MECHANISMS, AuthenticationSettings, TokenSettings
from bearlake.serving.authentication.signing_keys import SigningKeys
from bearlake.serving.authentication.tokens import Tokens
from bearlake.serving.authentication.users import StoredUsers

T = TypeVar("T")
NEAR = Peer("127.0.0.1", False, MECHANISMS)


class Recording(ThreadPoolExecutor):
    """Notes what it is given: the function, and the cost of the credential that it checks."""

    def __init__(self) -> None:
        super().__init__(1)
        self.work: list[tuple[str, str, int, int]] = []

    @override
    def submit(self, function: Callable[..., T], /, *arguments: Any, **more: Any) -> Future[T]:
        (credential,) = (argument for argument in arguments if isinstance(argument, ScramCredential))
        cost = credential.mechanism, credential.iterations, len(credential.salt)
        self.work.append((function.__name__, *cost))
        return super().submit(function, *arguments, **more)


async def test_an_unknown_user_costs_as_much_as_a_wrong_password() -> None:
    metadata = await open_metadata("memory:///")
    made = [create_credential(mechanism, "secret") for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
    changes = [CredentialChange("alice", credential.mechanism, credential) for credential in made]
    await metadata.users.change(changes, revision=await metadata.users.revision())
    token = TokenSettings(issuer="https://issuer.example", audience="bearlake")

    async def nothing() -> bytes:
        return b'{"keys": []}'

    with Recording() as executor:
        keys = SigningKeys(nothing, refresh_ms=1, retry_ms=1, stale_ms_max=1)
        settings = AuthenticationSettings(mechanisms=list(MECHANISMS), token=token)
        authenticator = Authenticator(settings, StoredUsers(metadata.users), Tokens(token, keys), executor)
        for user in ("alice", "ghost", "ghost", "alice"):
            with pytest.raises(Denied) as refusal:
                await authenticator.log_in(user, "wrong", NEAR)
            assert "wrong user name or password" in str(refusal.value).lower() or user not in str(refusal.value)

    assert len(executor.work) == 4
    assert len(set(executor.work)) == 1
    await metadata.close()
