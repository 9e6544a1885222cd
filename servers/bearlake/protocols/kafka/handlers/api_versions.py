"""ApiVersions: the APIs and versions that this server supports.

If the request's version is too new, the response has the layout of version 0, error 35 and only the range of ApiVersions, so that the
client can ask again. The response header never has tagged fields. Source: KIP-35, KIP-511.
"""

import logging

from bearlake import __version__
from bearlake.errors import Corrupt
from bearlake.protocols.kafka import apis, codec
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.messages import ApiVersionsRequest, ApiVersionsResponse

_ZERO_FROM = 4
"""Older clients refuse a feature whose smallest version is 0 (KAFKA-17011)."""

log = logging.getLogger(__name__)


async def handle(context: KafkaContext, caller: Caller, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """All advertised APIs with their version ranges."""
    if caller.version >= 3:
        log.debug(
            "client",
            extra={
                "software": request.client_software_name,
                "software_version": request.client_software_version,
                "server_version": __version__,
            },
        )
    return ApiVersionsResponse(
        api_keys=[_range(api) for api in apis.APIS],
        supported_features=[
            ApiVersionsResponse.SupportedFeature(
                name=feature.name, min_version=feature.version_min, max_version=feature.version_max
            )
            for feature in apis.FEATURES
            if feature.version_min > 0 or caller.version >= _ZERO_FROM
        ],
        finalized_features_epoch=apis.FEATURES_EPOCH,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeature(
                name=feature.name, max_version_level=feature.version, min_version_level=feature.version
            )
            for feature in apis.FEATURES
        ],
    )


def unsupported(api: apis.Api, version: int, correlation_id: int) -> list[codec.Buffer]:
    """The response frame for an ApiVersions request whose version is too new. Raises `Corrupt` for other APIs."""
    if api.key != ApiKey.API_VERSIONS:
        raise Corrupt(
            f"{api.key.name} version {version} is not supported; expected {api.version_min} to {api.version_max}"
        )
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(apis.BY_KEY[ApiKey.API_VERSIONS])]
    )
    return codec.response(ApiKey.API_VERSIONS, 0).frame(correlation_id, response)


def _range(api: apis.Api) -> ApiVersionsResponse.ApiVersion:
    return ApiVersionsResponse.ApiVersion(api_key=api.key, min_version=api.version_min, max_version=api.version_max)
