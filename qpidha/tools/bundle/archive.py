"""The archive of a bundle: a tar.gz that only its owner may read, and that is there whole or not at
all. Everything passes through the masking.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Mapping
from typing import Any

from qpidha.tools.bundle.masking import Masking


def write(path: str, name: str, files: Mapping[str, Any], masking: Masking) -> list[str]:
    """Write the files, texts or values for JSON, below the folder `name` of an archive; return
    their names. Raises OSError.
    """
    temporary = f"{path}.{os.getpid()}.part"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    written = []
    try:
        with (
            open(descriptor, "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as archive,
        ):
            for inner, content in files.items():
                text = content if isinstance(content, str) else None
                if text is None:
                    text = json.dumps(masking.value(content), indent=1, default=str) + "\n"
                else:
                    text = masking.text(text)
                data = text.encode(errors="replace")
                entry = tarfile.TarInfo(f"{name}/{inner}")
                entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
                archive.addfile(entry, io.BytesIO(data))
                written.append(inner)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return written
