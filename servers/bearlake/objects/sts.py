"""Temporary S3 keys from AWS STS, or from a server that speaks its protocol, such as MinIO.

The keys with which this process asks are those of the object store: `object_store.cloud.credentials_file`, or the `AWS_…` variables or the
platform. Needs botocore (`bearlake[vending]`), which is loaded by the first call.

Source: AWS STS API Reference, "AssumeRole"; AWS IAM User Guide, "Session policies".
"""

import asyncio
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from bearlake.errors import Invalid, Unavailable
from bearlake.objects.cloud_credentials import read_keys
from bearlake.objects.cloud_settings import CloudSettings
from bearlake.objects.sts_settings import RoleSettings

_REGION_DEFAULT: Final = "us-east-1"
_ATTEMPT_COUNT: Final = 2
_NAME_LENGTH_MAX: Final = 64
_Keys = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleKeys:
    """Temporary keys. `expires_ms`: Unix time."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)
    expires_ms: int


class Sts:
    """Assumes a role. Belongs to one event loop; calls run on threads of its own."""

    def __init__(self, settings: RoleSettings, cloud: CloudSettings) -> None:
        self._settings = settings
        self._cloud = cloud
        self._threads = ThreadPoolExecutor(settings.concurrent_count, "sts")
        self._lock = threading.Lock()
        self._client: tuple[_Keys | None, Any] | None = None

    async def assume(self, session_name: str, policy: str) -> RoleKeys:
        """Return keys that may do what both the role and `policy` (JSON) allow. `session_name` is in the logs of the cloud.

        Raises:
            Unavailable: STS did not answer in time, or refused.
        """
        try:
            async with asyncio.timeout(self._settings.deadline_ms / 1000):
                return await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._assume, _plain(session_name), policy
                )
        except TimeoutError:
            raise Unavailable(f"STS gave no keys within {self._settings.deadline_ms} ms") from None

    def close(self) -> None:
        """Release the threads; running calls end by their own deadlines."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _assume(self, session_name: str, policy: str) -> RoleKeys:
        from botocore.exceptions import BotoCoreError, ClientError

        external = {} if self._settings.external_id is None else {"ExternalId": self._settings.external_id}
        try:
            found = self._client_now().assume_role(
                RoleArn=self._settings.role_arn,
                RoleSessionName=session_name,
                DurationSeconds=self._settings.duration_s,
                Policy=policy,
                **external,
            )["Credentials"]
        except ClientError as error:  # the message may name the external id or the policy
            raise Unavailable(f"STS refused to give keys: {error.response.get('Error', {}).get('Code')}") from None
        except BotoCoreError as error:
            raise Unavailable(f"STS gave no keys: {type(error).__name__}") from None
        except Invalid as error:
            raise Unavailable(str(error)) from error
        return RoleKeys(
            access_key_id=found["AccessKeyId"],
            secret_access_key=found["SecretAccessKey"],
            session_token=found["SessionToken"],
            expires_ms=int(found["Expiration"].timestamp() * 1000),
        )

    def _client_now(self) -> Any:
        """Return the client (Any: botocore makes its class) with the keys of now."""
        path = self._cloud.credentials_file
        keys = None if path is None else read_keys(path)
        with self._lock:
            if self._client is None or self._client[0] != keys:
                self._client = keys, self._connected(keys)
            return self._client[1]

    def _connected(self, keys: _Keys | None) -> Any:
        from botocore.config import Config
        from botocore.session import Session

        session = Session()
        wait_s = self._settings.deadline_ms / 1000 / _ATTEMPT_COUNT
        own = {} if keys is None else dict(zip(_KEY_NAMES, keys, strict=True))
        return session.create_client(
            "sts",
            region_name=self._cloud.region or session.get_config_variable("region") or _REGION_DEFAULT,
            endpoint_url=self._settings.sts_endpoint,
            config=Config(
                connect_timeout=wait_s,
                read_timeout=wait_s,
                retries={"total_max_attempts": _ATTEMPT_COUNT},
                max_pool_connections=self._settings.concurrent_count,
            ),
            **own,
        )


_KEY_NAMES: Final = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def _plain(name: str) -> str:
    """Return a session name of the characters and the length that STS allows."""
    return re.sub(r"[^\w+=,.@-]", "-", name, flags=re.ASCII)[:_NAME_LENGTH_MAX].ljust(2, "-")
