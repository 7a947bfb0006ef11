"""Everything that floatlens writes to disk goes through here.

It is written beside its place first and renamed when it is whole, with a manifest of what was written.

`writing.py` writes and renames folders, `files.py` single files; `places.py` says where that is refused; `owners.py` lets one process at
a time write to a place and knows a dead one; `manifest.py` says which files of a folder are floatlens' own, and whether they are still
what was written.
"""

from floatlens.folders.files import is_half_written, write_whole
from floatlens.folders.manifest import MANIFEST, FileRecord, Manifest, damage, read_manifest, write_manifest
from floatlens.folders.places import disk_failures, place_for, short_name
from floatlens.folders.writing import (
    UnfinishedFolder,
    clear_up_dead,
    files_added_to,
    folder_once,
    one_writer,
    refuse_folder_to_fill,
    refuse_place,
    say,
    unfinished_folder,
)

__all__ = [
    "MANIFEST",
    "FileRecord",
    "Manifest",
    "UnfinishedFolder",
    "clear_up_dead",
    "damage",
    "disk_failures",
    "files_added_to",
    "folder_once",
    "is_half_written",
    "one_writer",
    "place_for",
    "read_manifest",
    "refuse_folder_to_fill",
    "refuse_place",
    "say",
    "short_name",
    "unfinished_folder",
    "write_manifest",
    "write_whole",
]
