"""How the clients of one listener log in to a Kafka connection: by SASL, by their certificate, or not at all."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING

from bearlake.protocols.kafka.sasl import SaslSession
from bearlake.serving.authentication.peer import LoginRules
from bearlake.streams.principal import Principal

if TYPE_CHECKING:  # its libraries are loaded only by processes whose clients log in
    from bearlake.serving.authentication.authenticator import Authenticator
    from bearlake.serving.authentication.certificates import Subject


@dataclass(frozen=True, slots=True)
class KafkaListenerLogin:
    """The rules of one listener, and who decides."""

    authenticator: "Authenticator"
    rules: LoginRules

    @property
    def login_s(self) -> float:
        """Time (s) in which a connection must log in."""
        return self.authenticator.settings.login_ms / 1000

    @property
    def refusal_s(self) -> float:
        """Time (s) that a connection stays open after a refused login."""
        return self.authenticator.settings.refusal_ms / 1000

    def session(self, address: str, is_encrypted: bool, listener: str = "") -> SaslSession | None:
        """Return the SASL session of a new connection; None if its clients do not log in by SASL."""
        if not self.rules.mechanisms:
            return None
        return SaslSession(self.authenticator, self.rules.peer(address, is_encrypted=is_encrypted, listener=listener))

    def at_end(self, who: Principal, work: Callable[[], None]) -> asyncio.TimerHandle | None:
        """Call `work` when a login that begins now ends; None: it never ends."""
        now_s = time()
        ends_s = self.authenticator.ends_s(who, now_s)
        return None if ends_s == math.inf else asyncio.get_running_loop().call_later(ends_s - now_s, work)

    def principal(self, subject: "Subject | None") -> Principal | None:
        """Return whom a client's certificate names; None if clients do not log in by certificate. Raises `Denied`."""
        if not self.rules.by_certificate:
            return None
        return self.authenticator.read_certificate(subject or ())
