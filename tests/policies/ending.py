"""A module of a package that ends the program which loads it, as if all were well."""

raise SystemExit(0)
