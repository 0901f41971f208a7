"""The one place where sockets are: bytes between a protocol machine and a connection."""
