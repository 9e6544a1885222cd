"""SaslHandshake and SaslAuthenticate: they pass on to the connection's SASL session (`protocols/kafka/sasl.py`)."""

from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


async def handshake(context: KafkaContext, caller: Caller, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Choose a mechanism. On a listener without SASL, the client gets ILLEGAL_SASL_STATE, as from Kafka."""
    if caller.session is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    if caller.version == 0:
        return caller.session.refuse_unframed_tokens()
    return caller.session.handshake(request)


async def authenticate(
    context: KafkaContext, caller: Caller, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Take the next message of the mechanism; see `handshake`."""
    if caller.session is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="clients of this listener do not log in by SASL",
            auth_bytes=b"",
        )
    return await caller.session.authenticate(request)
