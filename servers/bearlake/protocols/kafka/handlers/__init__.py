"""Request handlers, one module per family of APIs. Every handler is `async def (context, caller, request) -> response`."""
