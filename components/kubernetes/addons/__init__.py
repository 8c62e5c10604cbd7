"""The platform's add-ons, one module for each; `available` lists them."""
