"""The servers that have an API of their own, each a module with its `KIND`."""
