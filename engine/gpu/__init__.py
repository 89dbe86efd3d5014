"""GPU jobs: pack a kernel with its spec, run it wherever a GPU is, import what it found.

A job is a folder that brings its worker (`engine.worker`); everything else here runs on the
machine that packs and imports.
"""
