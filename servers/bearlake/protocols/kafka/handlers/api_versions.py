"""ApiVersions: what this server speaks.

Source: KIP-35, KIP-511. A version that is too new is answered with the layout of version 0, error 35 and the range of
ApiVersions alone, so that the client can ask again; the header of this response never has tagged fields.
"""

import logging

from bearlake import __version__
from bearlake.protocols.kafka import apis, codec
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.messages import ApiVersionsRequest, ApiVersionsResponse

log = logging.getLogger(__name__)


async def handle(context: KafkaContext, caller: Caller, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Every advertised API with its range of versions."""
    if caller.version >= 3:
        log.debug(
            "client",
            extra={
                "software": request.client_software_name,
                "software_version": request.client_software_version,
                "server_version": __version__,
            },
        )
    return ApiVersionsResponse(api_keys=[_range(api) for api in apis.APIS])


def unsupported(correlation_id: int) -> list[codec.Buffer]:
    """The frame that answers a version which is too new."""
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(apis.BY_KEY[ApiKey.API_VERSIONS])]
    )
    return codec.response(ApiKey.API_VERSIONS, 0).frame(correlation_id, response)


def _range(api: apis.Api) -> ApiVersionsResponse.ApiVersion:
    return ApiVersionsResponse.ApiVersion(api_key=api.key, min_version=api.version_min, max_version=api.version_max)
