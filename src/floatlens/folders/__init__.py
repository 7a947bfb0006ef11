"""Whatever floatlens writes to disk goes through here: beside its place first, renamed when it is whole, with a manifest of what was written.

`manifest.py` says which files of a folder are floatlens' own, and whether they are still what was written.
"""

from floatlens.folders.manifest import MANIFEST, FileRecord, Manifest, damage, read_manifest, write_manifest

__all__ = ["MANIFEST", "FileRecord", "Manifest", "damage", "read_manifest", "write_manifest"]
