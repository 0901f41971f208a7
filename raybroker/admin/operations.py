"""The verbs of administration, under the name by which the command line knows them."""

from raybroker.client.admin.admin import Admin, pages

__all__ = ["Admin", "pages"]
