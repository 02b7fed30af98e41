"""Leaves that every stage may use: settings, manifests, tables, devices."""
