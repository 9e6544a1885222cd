"""The OpenAPI document of an HTTP server, generated from its routes, and a page to browse it."""
