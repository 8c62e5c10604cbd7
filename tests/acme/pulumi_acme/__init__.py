"""An SDK of a provider that the sandbox has no model of, in the form of the vendor's generator."""

from pulumi_acme import _utilities
from pulumi_acme.get_zone import GetZoneResult, get_zone
from pulumi_acme.group import Group
from pulumi_acme.thing import Thing

__all__ = ["GetZoneResult", "Group", "Thing", "get_zone"]

_utilities.register(
    resource_modules="""
[
 {
  "pkg": "acme",
  "mod": "index/thing",
  "fqn": "pulumi_acme",
  "classes": {
   "acme:index/thing:Thing": "Thing",
   "acme:index/group:Group": "Group"
  }
 }
]
"""
)
