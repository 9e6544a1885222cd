"""The OpenAPI document of the REST server, made from its routes, and a page to browse it."""
