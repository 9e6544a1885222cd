"""The control plane: reconciles Stream and Compactor resources into servers and compaction workers.

Of the data plane it imports `bearlake.owned_tasks` alone. With it comes `import bearlake`, which repairs asyncio on old Pythons.
"""
