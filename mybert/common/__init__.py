"""Shared utilities: settings and command line, manifests, output folders, tables, devices."""
