"""One module per family of APIs; every handler is `async def (broker, context, request) -> response`."""
