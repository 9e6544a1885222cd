"""One module per family of APIs; every handler is `async def (context, caller, request) -> response`."""
