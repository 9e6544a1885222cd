"""Loads the libraries of a server that must be loaded in a certain way, before any other module of `bearlake.app` loads them."""

from bearlake.serving.http.loading import load_aiohttp

load_aiohttp()
